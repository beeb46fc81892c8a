// ZeRO-1's all-gather of new weights in buckets, each of which is waited for where the next step's forward first reads
// one of its weights.
// Source: megatron/core/distributed/param_and_grad_buffer.py (start_param_sync, finish_param_sync).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct OverlapParamGatherConfig {
  bool overlap_param_gather = false;
  bool overlap_param_gather_with_optimizer_step = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("overlap_param_gather", &OverlapParamGatherConfig::overlap_param_gather,
          "Gather the weights that an update has made in the buckets of --overlap-grad-reduce, while the next step's "
          "forward is computed; changes no bit. For slow links");
    field("overlap_param_gather_with_optimizer_step",
          &OverlapParamGatherConfig::overlap_param_gather_with_optimizer_step,
          "Gather each bucket's weights while the optimizer updates those of the next ones; changes no bit");
  }
};

Feature overlap_param_gather_feature();

}  // namespace ms::train
