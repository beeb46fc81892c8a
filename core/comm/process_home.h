// Whether a process is alive, and whether this one could know.
#pragma once

#include <cstdint>

#include "core/comm/flight_file.h"

namespace ms::core {

flight::Home own_home();
bool see_each_other(const flight::Home& a, const flight::Home& b);

enum class ProcessState : uint8_t { kUnknown, kRuns, kStopped, kDead };
// Of a process of this machine. started: its start time as process_start() gave it; 0: unknown. A zombie is dead.
ProcessState process_state(int64_t pid, int64_t started = 0);
// Field 22 of /proc/PID/stat; 0 if it cannot be read.
int64_t process_start(int64_t pid);

}  // namespace ms::core
