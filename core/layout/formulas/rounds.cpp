#include "core/layout/formulas/rounds.h"

#include <algorithm>
#include <utility>

namespace ms::layout {
namespace {

int64_t padded_for(const TrainingStep& step, int degree, int64_t tokens) {
  const int64_t tp = step.sequence_parallel ? step.layout.tensor_model_parallel_size : 1;
  const int64_t multiple = tp * SequenceShare::parts(step.context_algorithm, degree);
  return (tokens + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<DegreeLengths> degree_lengths(const TrainingStep& step) {
  std::vector<DegreeLengths> lengths;
  const int64_t most = step.max_seqlen_per_dp_cp_rank;
  for (int degree = 1; most > 0 && degree <= step.layout.context_parallel_size; degree *= 2) {
    const int64_t longest = std::min(step.seq_length, most * degree);
    const int64_t of_fewer = degree == 1 ? 0 : std::min(step.seq_length, most * (degree / 2));
    lengths.push_back({degree, of_fewer + 1, longest, padded_for(step, degree, longest)});
  }
  return lengths;
}

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

std::vector<TrainingStep> fullest_steps(const TrainingStep& step) {
  std::vector<TrainingStep> steps;
  const bool have_others_beside = step.layout.pipeline_model_parallel_size > 1;
  for (const DegreeLengths& of : degree_lengths(step)) {
    if (of.shortest > of.longest) continue;
    const int64_t rows = std::min(step.max_seqlen_per_dp_cp_rank, step.seq_length);
    const int64_t tokens = have_others_beside ? padded_for(step, of.degree, rows * of.degree) : of.padded;
    steps.push_back(step_of_round(step, of.degree, tokens));
    steps.back().num_microbatches = step.num_microbatches;
  }
  return steps;
}

}  // namespace ms::layout
