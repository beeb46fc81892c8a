// The last communication operations of each rank, on disk when a run hangs or dies (core/comm/flight_recorder.h).
// Source: Megatron's --flight-recorder-dump-path and --flight-recorder-trace-buffer-size, which set those of PyTorch's
// Flight Recorder.
#pragma once

#include <cstdint>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct FlightRecorderConfig {
  bool flight_recorder = true;
  std::string flight_recorder_dump_path;
  int64_t flight_recorder_trace_buffer_size = 2000;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = FlightRecorderConfig;
    field(
        "flight_recorder", &C::flight_recorder,
        "Record the last communication operations of each rank, so that a run that hangs names the rank at fault, and "
        "msprof flight shows what each rank did; of a run of one rank only with --flight-recorder-dump-path");
    field("flight_recorder_dump_path", &C::flight_recorder_dump_path,
          "Folder for these records, one file per rank, which stay after the run and replace those of an earlier one; "
          "runs at the same time need one each. Empty: a new folder in memory "
          "(/dev/shm), which stays only if the run fails; the error names it. On a network file system an operation "
          "may wait for the network");
    field("flight_recorder_trace_buffer_size", &C::flight_recorder_trace_buffer_size,
          "Operations that a rank keeps, 128 bytes each; some steps' worth");
  }
};

Feature flight_recorder_feature();

}  // namespace ms::train
