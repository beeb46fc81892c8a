// The order in which the axes of the layout number the ranks. Source: Megatron's --use-tp-pp-dp-mapping
// (megatron/core/parallel_state.py, order "tp-cp-ep-pp-dp").
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct RankOrderConfig {
  bool use_tp_pp_dp_mapping = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RankOrderConfig;
    field("use_tp_pp_dp_mapping", &C::use_tp_pp_dp_mapping,
          "Number the ranks TP, then PP, then DP, instead of TP, DP, PP: the stages of a pipeline are then neighbours, "
          "for nodes that hold whole replicas. Results and checkpoints are the same");
  }
};

Feature rank_order_feature();

}  // namespace ms::train
