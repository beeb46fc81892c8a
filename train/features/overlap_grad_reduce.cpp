#include "train/features/overlap_grad_reduce.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kBucketSize = "--ddp-bucket-size";
constexpr const char* kNumBuckets = "--ddp-num-buckets";

bool overlaps_reduction(const TrainerConfig& config) { return config.parallel.overlap_grad_reduce; }
bool gives_bucket_size(const TrainerConfig& config) { return config.parallel.ddp_bucket_size.has_value(); }
bool gives_num_buckets(const TrainerConfig& config) { return config.parallel.ddp_num_buckets.has_value(); }

}  // namespace

layout::BucketSettings bucket_settings(const OverlapGradReduceConfig& config) {
  return {.overlapped = config.overlap_grad_reduce,
          .bucket_size = config.ddp_bucket_size.value_or(0),
          .num_buckets = config.ddp_num_buckets.value_or(0)};
}

Feature overlap_grad_reduce_feature() {
  return {
      .name = "overlap-grad-reduce",
      .level = 2,
      .effect = "Reduces gradients in buckets while the last backward is computed: the same bytes, hidden",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<OverlapGradReduceConfig>("parallel", config.parallel); },
      .is_active = overlaps_reduction,
      .rules = {excludes(kBucketSize, gives_bucket_size, kNumBuckets, gives_num_buckets)},
      .ineffective = {{[](const TrainerConfig& c) {
                         return (gives_bucket_size(c) || gives_num_buckets(c)) && !overlaps_reduction(c);
                       },
                       "--ddp-bucket-size and --ddp-num-buckets have no effect without --overlap-grad-reduce: "
                       "gradients are reduced in one message"}},
      .check =
          [](const TrainerConfig& c, int) {
            require(c.parallel.ddp_bucket_size.value_or(1) > 0, kBucketSize, " ",
                    c.parallel.ddp_bucket_size.value_or(0), ": at least 1 element");
            require(c.parallel.ddp_num_buckets.value_or(1) > 0, kNumBuckets, " ",
                    c.parallel.ddp_num_buckets.value_or(0), ": at least 1");
          },
  };
}

}  // namespace ms::train
