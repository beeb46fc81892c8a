// What ranks exchange to share the samples of one micro-batch, where its number of ranks follows from its length
// (TrainingStep::max_seqlen_per_dp_cp_rank). A run counts the sum over its micro-batches.
#pragma once

#include <vector>

#include "core/layout/formulas/communication.h"

namespace ms::layout {

// The step with one micro-batch of samples of seq_length tokens on `degree` of the cp ranks.
TrainingStep step_of_round(const TrainingStep& step, int degree, int64_t seq_length);

// Forward and backward of the same in the group of those ranks (group_of_degree), on a rank of a stage; seq_length:
// with padding. Empty if degree is 1.
std::vector<Traffic> round_traffic(const TrainingStep& step, int degree, int64_t seq_length, int stage);

}  // namespace ms::layout
