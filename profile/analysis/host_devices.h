// What takes the place of device events in a trace without any: a CPU is the device.
//
// Calls of a communicator (gloo:*, mpi:*) are communication. Computing are operators: of each chain of nested ones the
// outermost whose children cover less than half of it, so that names say what is computed and no time counts twice on
// one thread. Operators that hand work to the communicator or wait for it (c10d::*, _c10d_functional::*) are neither,
// nor is what a communicator's own thread does, nor what a data loader calls. Threads are lanes.
#pragma once

#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// By start; without steps. O(n log n).
std::vector<DeviceEvent> host_devices(const RankTrace& trace);

}  // namespace ms::profile
