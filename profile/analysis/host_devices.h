// Device events of a CPU-only trace: the CPU is the device.
//
// Communicator calls (gloo:*, mpi:*) are communication. Operators are computing: of each chain of nested ones, the
// outermost whose children cover less than half of it, so that names say what is computed and no time counts twice on a
// thread. Excluded are operators that pass work to the communicator or wait for it (c10d::*, _c10d_functional::*), all
// events on a communicator's own thread, and what a data loader calls. Threads are lanes.
#pragma once

#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// Sorted by start; step indices are not set. O(n log n).
std::vector<DeviceEvent> host_devices(const RankTrace& trace);

}  // namespace ms::profile
