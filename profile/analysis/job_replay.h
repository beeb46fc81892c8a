// A job replayed with some of its work made shorter: how much sooner would it end?
//
// Every rank does what it did, in its order. An operation moves data once its last awaited part has begun and its lane
// is free, for as long as it did in the trace. A rank waits for an operation if its exposed part lasted until the
// operation completed; requests that complete at the same time (MPI_Waitall) complete together here too, after the last
// of their partners. Everything else keeps its length. So a change helps until another rank becomes the one that is
// waited for, which the share of the critical path alone does not tell. Without a change the replay gives the times of
// the trace, to the nanosecond.
//
// The order is that of dependencies, not of time: calls in a row touch, and their times do not order them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "profile/analysis/activity.h"

namespace ms::profile {

// Nanoseconds that a part of the rank's timeline takes instead of `length`: at most `length`. The part is an activity,
// or a piece of one that ends where an operation begins. Of communication `length` is the time in which data moves;
// waiting follows from the replay.
using NewLength = std::function<int64_t(size_t rank, const Activity& activity, int64_t length)>;

// From the first start to the last end of any rank. O(n log n).
int64_t replay(const std::vector<RankActivities>& ranks, const NewLength& new_length);

}  // namespace ms::profile
