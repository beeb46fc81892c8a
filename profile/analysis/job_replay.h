// A job replayed with some of its work made shorter: how much sooner would it end?
//
// Every rank does what it did, in its order; an operation goes on when the last of those it waits for has begun, and
// then takes as long as it took. Gaps keep their length. So what is sped up helps as far as nobody else becomes the
// one who is waited for, which the share of the critical path alone does not tell. Nothing changed gives back the
// times of the trace, to the nanosecond.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "profile/analysis/activity.h"

namespace ms::profile {

// Nanoseconds that the activity takes instead: its own length, or less. Of communication: of `length`, the part in
// which data moves; waiting follows from the replay.
using NewLength = std::function<int64_t(size_t rank, const Activity& activity, int64_t length)>;

// From the first start to the last end of any rank. O(n log n).
int64_t replay(const std::vector<RankActivities>& ranks, const NewLength& new_length);

}  // namespace ms::profile
