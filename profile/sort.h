// Orders events by time. Traces consist of a few hundred sorted runs (lanes times chunks), so runs are merged instead
// of sorting.
#pragma once

#include <cstdint>

#include "profile/column.h"

namespace ms::profile {

// Whether event b precedes a: earlier start, or at the same start a longer duration, so that a slice precedes the
// slices inside it.
inline bool starts_before(const Column<int64_t>& ts, const Column<int64_t>& dur, uint32_t b, uint32_t a) {
  return ts[b] != ts[a] ? ts[b] < ts[a] : dur[b] > dur[a];
}

// The stable order by starts_before: order[i] is the index of the i-th event. O(n log runs).
Column<uint32_t> order_by_start(const Column<int64_t>& ts, const Column<int64_t>& dur);

}  // namespace ms::profile
