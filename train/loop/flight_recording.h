// Opens the flight recorder of a run (core/comm/flight_recorder.h).
#pragma once

#include "core/comm/communicator.h"
#include "train/features/flight_recorder.h"

namespace ms::train {

// Collective over all ranks. Opens the recorder of the world's endpoint, if it has one that is not open, as the flags
// say. Where the user names no folder, a machine without room for one is a warning; else throws kIo on all ranks.
void open_flight_recorder(const FlightRecorderConfig& config, core::Communicator& world);

}  // namespace ms::train
