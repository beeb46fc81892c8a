// Replays a job with some of its work made shorter, to find how much sooner it would end.
//
// Every rank performs its activities in order. An operation moves data once its last awaited part has begun and its
// lane is free, for as long as in the trace. A rank waits for an operation if its exposed part lasted until the
// operation completed; requests that complete at the same time (MPI_Waitall) complete together in the replay, after the
// last of their partners. Everything else keeps its length. A change therefore helps only until another rank is waited
// for, which the share of the critical path does not show. Without a change the replay reproduces the times of the
// trace to the nanosecond.
//
// The order comes from dependencies, not from times: consecutive calls touch, so their times do not order them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "profile/analysis/activity.h"

namespace ms::profile {

// Returns the nanoseconds that a part of the rank's timeline takes instead of `length`: at most `length`. The part is
// an activity, or a piece of one that ends where an operation begins. For communication, `length` is the time in which
// data moves; waiting follows from the replay.
using NewLength = std::function<int64_t(size_t rank, const Activity& activity, int64_t length)>;

// The runtime from the first start to the last end of any rank. O(n log n).
int64_t replay(const std::vector<RankActivities>& ranks, const NewLength& new_length);

}  // namespace ms::profile
