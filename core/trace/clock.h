// The clocks of the ranks against rank 0's (traces.md 7.3), so that msprof can put all ranks on one time line.
#pragma once

#include <cstdint>

#include "core/comm/communicator.h"
#include "core/trace/recorder.h"

namespace ms::core::trace {

struct ClockOffset {
  int64_t at_ns = 0;      // own time of the measurement
  int64_t offset_ns = 0;  // own clock - clock of rank 0 of the group; 0 on rank 0
  int64_t error_ns = 0;   // at most this far from the truth: half of the smallest round trip
};

inline constexpr int kClockRounds = 64;

// Collective: rank 0 of the group answers each other rank in turn, `rounds` ping-pongs each; the one with the smallest
// round trip counts (NTP's rule: its midpoint is off by at most half of it). Throws kPeerFailed.
ClockOffset measure_clock_offset(Communicator& comm, int rounds = kClockRounds);

// Collective: measures, and stores the result on the ranks whose recorder is active (recorder may be null). Call it
// after Recorder::start and once more before stop; two measurements give the drift.
void record_clock_offset(Communicator& comm, Recorder* recorder);

}  // namespace ms::core::trace
