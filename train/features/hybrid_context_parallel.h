// Samples of a step dealt to data-parallel ranks by what they cost (train/data/deal.h), and those of their own length
// to as many of the ranks that share sequences as they need (train/data/degree_deal.h).
// Source: Megatron's --hybrid-context-parallel and --max-seqlen-per-dp-cp-rank (BalancedCPScheduler,
// megatron/core/pipeline_parallel/hybrid_cp_schedule.py).
#pragma once

#include <cstdint>
#include <optional>

#include "core/layout/context_parallel.h"
#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;

struct HybridContextParallelConfig {
  bool hybrid_context_parallel = false;
  std::optional<int64_t> max_seqlen_per_dp_cp_rank;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = HybridContextParallelConfig;
    field("hybrid_context_parallel", &C::hybrid_context_parallel,
          "Deal the samples of a step to the data-parallel ranks by their FLOPs, so that those with long documents do "
          "not meet on one rank; each rank gets as many. With packed documents or --variable-seq-lengths; with "
          "the latter and --context-parallel-size each micro-batch has as many ranks as its longest sample needs");
    field("max_seqlen_per_dp_cp_rank", &C::max_seqlen_per_dp_cp_rank,
          "With --hybrid-context-parallel: most tokens of a sample on one rank; --seq-length divided by it, rounded "
          "up, must not exceed --context-parallel-size. Fewer: more ranks share a sample, for less memory");
  }
};

// Whether micro-batches have as many of the ranks that share sequences as their longest sample needs.
bool chooses_degrees(const ModelParallelConfig& parallel);

// Of such: what number cp_rank of --context-parallel-size has of a sequence that `degree` neighbours share, and the
// lengths of which all of them can have their part, also by sequence parallelism: multiples of it.
layout::SequenceShare share_of_degree(const ModelParallelConfig& parallel, int64_t seq_length, int degree, int cp_rank);
int64_t multiple_of_degree(const ModelParallelConfig& parallel, int degree);

Feature hybrid_context_parallel_feature();

}  // namespace ms::train
