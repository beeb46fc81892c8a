// Steps and stragglers as Holistic Trace Analysis 0.6.1 finds them (traces.md 14); cross_rank.h is ours.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/hta_frame.h"

namespace ms::profile {

// Numbers of the steps in the tables, ascending.
std::vector<int64_t> hta_profiler_steps(const std::vector<HtaFrame>& frames);

// Ranks that start late, the most often late first; at most `candidates`. Of the kernels named ncclKernel... in the
// steps that last at least 1 % of a mean step the last of each rank, stream, step and name counts; the stream and name
// decide whose durations differ most between ranks (mean standard deviation over the steps); in every step the
// `candidates` latest starts, and all that start as late as they, are suspects. Empty where HTA fails: without two
// ranks in each of these steps.
std::vector<int> hta_stragglers(const std::vector<HtaFrame>& frames, size_t candidates = 2);

}  // namespace ms::profile
