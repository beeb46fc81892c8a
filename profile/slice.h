// Cuts traces down to what somebody wants to look at or pass on.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

struct SliceOptions {
  std::vector<int64_t> steps;              // empty: all
  int64_t from_ns = 0, to_ns = INT64_MAX;  // since the first event of the rank
};

// Keeps the events that reach into the chosen steps or times, whole, with the device events that they launched, and
// the memory changes and counters in between. Throws kNotFound for a step that no rank has.
void slice(Store& store, const SliceOptions& options);

// Of each rank with several steps, leaves out the last: what the host does from its start on, the device events
// launched by that, and memory changes and counters from there on. Profilers often stop in it.
void drop_last_steps(Store& store);

}  // namespace ms::profile
