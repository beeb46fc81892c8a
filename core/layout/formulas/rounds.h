// Micro-batches whose number of ranks follows from their length (TrainingStep::max_seqlen_per_dp_cp_rank): how long
// those of each number are, what their ranks exchange to share them, and what a rank holds. A run counts the sum of the
// former over its micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/formulas/communication.h"

namespace ms::layout {

// Samples that need `degree` ranks, in tokens: none does if shortest > longest. padded: the longest, with what it takes
// for all ranks to have their part.
struct DegreeLengths {
  int degree = 1;
  int64_t shortest = 0, longest = 0, padded = 0;
};
// Of 1, 2, 4, .. up to CP ranks; empty where all samples have CP ranks.
std::vector<DegreeLengths> degree_lengths(const TrainingStep& step);

// The step with one micro-batch of samples of seq_length tokens on `degree` of the cp ranks.
TrainingStep step_of_round(const TrainingStep& step, int degree, int64_t seq_length);

// Forward and backward of the same in the group of those ranks (group_of_degree), on a rank of a stage; seq_length:
// with padding. Empty if degree is 1.
std::vector<Traffic> round_traffic(const TrainingStep& step, int degree, int64_t seq_length, int stage);

// Steps of which one holds the most that a rank can: for each number of ranks one whose samples all are the longest. In
// a pipeline those of the largest number may be longer than a sample, with as many tokens on a rank as others that are
// in flight beside them. Empty where all samples have CP ranks.
std::vector<TrainingStep> fullest_steps(const TrainingStep& step);

}  // namespace ms::layout
