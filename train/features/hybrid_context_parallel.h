// Samples of a step dealt to data-parallel ranks by what they cost (train/data/deal.h).
// Source: Megatron's --hybrid-context-parallel and --max-seqlen-per-dp-cp-rank (BalancedCPScheduler,
// megatron/core/pipeline_parallel/hybrid_cp_schedule.py), which also chooses how many ranks share a document; here it
// is --context-parallel-size ranks that share every sample.
#pragma once

#include <cstdint>
#include <optional>

#include "train/features/feature.h"

namespace ms::train {

struct HybridContextParallelConfig {
  bool hybrid_context_parallel = false;
  std::optional<int64_t> max_seqlen_per_dp_cp_rank;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = HybridContextParallelConfig;
    field("hybrid_context_parallel", &C::hybrid_context_parallel,
          "Deal the samples of a step to the data-parallel ranks by their FLOPs, so that those with long documents do "
          "not meet on one rank; each rank gets as many. With --reset-attention-mask or --variable-seq-lengths");
    field("max_seqlen_per_dp_cp_rank", &C::max_seqlen_per_dp_cp_rank,
          "With --hybrid-context-parallel: most tokens of a sample on one rank; --seq-length divided by it, rounded "
          "up, must not exceed --context-parallel-size");
  }
};

Feature hybrid_context_parallel_feature();

}  // namespace ms::train
