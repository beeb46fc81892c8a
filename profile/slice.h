// Cuts traces to chosen steps or times.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

struct SliceOptions {
  std::vector<int64_t> steps;              // empty: all
  int64_t from_ns = 0, to_ns = INT64_MAX;  // since the first event of the rank
};

// Keeps the events that overlap the chosen steps or times, uncut, with the device events that they launched, and the
// memory changes and counters in between. Throws kNotFound for a step that no rank has.
void slice(Store& store, const SliceOptions& options);

// Removes the last step of each rank that has several: host events from its start on, the device events they launched,
// and memory changes and counters from there on. Profilers often stop in it, so it is incomplete.
void drop_last_steps(Store& store);

}  // namespace ms::profile
