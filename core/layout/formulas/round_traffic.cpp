#include "core/layout/formulas/round_traffic.h"

#include <utility>

namespace ms::layout {

TrainingStep step_of_round(const TrainingStep& step, int degree, int64_t seq_length) {
  TrainingStep round = step;
  round.layout.context_parallel_size = degree;
  round.context_parts = context_parts(step.context_algorithm, degree, /*ulysses_degree=*/1, /*window=*/1);
  round.max_seqlen_per_dp_cp_rank = 0;
  round.seq_length = seq_length;
  round.num_microbatches = 1;
  return round;
}

std::vector<Traffic> round_traffic(const TrainingStep& step, int degree, int64_t seq_length, int stage) {
  if (degree == 1) return {};
  const TrainingStep round = step_of_round(step, degree, seq_length);
  std::vector<Traffic> traffic;
  for (const Traffic& of : step_traffic(round, round.grid().rank({.pp = stage}))) {
    if (of.group != Group::kCp) continue;
    traffic.push_back(of);
    traffic.back().group = group_of_degree(step.grid(), degree);
  }
  return traffic;
}

}  // namespace ms::layout
