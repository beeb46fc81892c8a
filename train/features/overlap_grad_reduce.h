// Data parallelism's reduction of gradients in buckets, each as soon as the last micro-batch has made its gradients
// final, while the backward goes on.
// Source: megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py; MindSpeed's async DDP.
#pragma once

#include "core/layout/gradient_buckets.h"
#include "train/features/feature.h"

namespace ms::train {

struct OverlapGradReduceConfig {
  bool overlap_grad_reduce = false;
  std::optional<int64_t> ddp_bucket_size;
  std::optional<int64_t> ddp_num_buckets;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = OverlapGradReduceConfig;
    field("overlap_grad_reduce", &C::overlap_grad_reduce,
          "Reduce gradients over the data-parallel ranks in buckets, each while the rest of the last backward is "
          "computed; changes no bit. For slow links, with enough computation to hide behind");
    field("ddp_bucket_size", &C::ddp_bucket_size,
          "With --overlap-grad-reduce: elements from which on a bucket is complete. Smaller ones begin earlier and "
          "cost more messages. Default: the larger of 40,000,000 and 1,000,000 x data-parallel size");
    field("ddp_num_buckets", &C::ddp_num_buckets,
          "Instead of --ddp-bucket-size: about so many buckets on each rank. Default: by --ddp-bucket-size");
  }
};

layout::BucketSettings bucket_settings(const OverlapGradReduceConfig& config);

Feature overlap_grad_reduce_feature();

}  // namespace ms::train
