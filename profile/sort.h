// Orders events by time. Traces come as a few hundred sorted runs (lanes times chunks), so runs are merged, not sorted.
#pragma once

#include <cstdint>

#include "profile/column.h"

namespace ms::profile {

// The stable order of `ts`: order[i] is the index of the i-th smallest. O(n log runs).
Column<uint32_t> order_by_start(const Column<int64_t>& ts);

}  // namespace ms::profile
