// Steps and stragglers by the method of Holistic Trace Analysis 0.6.1; cross_rank.h has msprof's own.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/hta_frame.h"

namespace ms::profile {

// Numbers of the steps in the tables, ascending.
std::vector<int64_t> hta_profiler_steps(const std::vector<HtaFrame>& frames);

// Ranks that start late, most often late first; at most `candidates`. Candidate kernels are the last ones per rank,
// stream, step and name that are named ncclKernel... and last at least 1 % of a mean step. The stream and name are
// chosen whose durations differ most between ranks (mean standard deviation over the steps); in every step the
// `candidates` latest starts, and all that start as late, are suspects. Empty where HTA fails: fewer than two ranks in
// one of these steps.
std::vector<int> hta_stragglers(const std::vector<HtaFrame>& frames, size_t candidates = 2);

}  // namespace ms::profile
