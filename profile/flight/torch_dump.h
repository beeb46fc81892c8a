// Reads dumps of PyTorch's Flight Recorder: pickles (TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE), or the
// JSON of _dump_fr_trace_json and _dump_nccl_trace_json. Nothing in a pickle is executed.
//
// Source: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (version 2.x of the dump), and the rules by which
// torch/distributed/flight_recorder compares operations.
#pragma once

#include <filesystem>
#include <string>

#include "core/comm/flight_dump.h"

namespace ms::profile {

// The rank is the last number in the file's name, as torch writes it: "_dump_3", "nccl_trace_rank_3", "rank_3.json".
// Throws kNotFound, kIo, kCorruptData and kUnsupported, naming the file.
core::FlightDump read_torch_dump(const std::filesystem::path& path);

// The same of the bytes of such a file; where: begins its errors.
core::FlightDump parse_torch_dump(std::string bytes, const std::string& where, int rank);

}  // namespace ms::profile
