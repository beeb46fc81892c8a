// Measures the offset of each rank's clock from rank 0's, so that msprof can show all ranks on one time line.
#pragma once

#include <cstdint>

#include "core/comm/communicator.h"
#include "core/trace/recorder.h"

namespace ms::core::trace {

struct ClockOffset {
  int64_t at_ns = 0;      // own clock at the measurement
  int64_t offset_ns = 0;  // own clock - clock of rank 0 of the group; 0 on rank 0
  int64_t error_ns = 0;   // largest possible error: half of the shortest round trip
};

inline constexpr int kClockRounds = 64;

// Collective: rank 0 of the group exchanges `rounds` ping-pongs with each other rank in turn; the one with the shortest
// round trip is used (as in NTP, its midpoint is off by at most half of it). Throws kPeerFailed.
ClockOffset measure_clock_offset(Communicator& comm, int rounds = kClockRounds);

// Collective: measures the offset and stores it on the ranks whose recorder is active (recorder may be null). Call it
// after Recorder::start and once more before stop; two measurements give the drift.
void record_clock_offset(Communicator& comm, Recorder* recorder);

}  // namespace ms::core::trace
