// Environment variables that pass the settings of `msprof record` to its library: launch.h sets them, mpi_recording.h
// reads them.
#pragma once

namespace ms::profile {

inline constexpr const char* kPathVariable = "MSUITE_RECORD_PATH";    // folder of the traces; unset: no trace
inline constexpr const char* kRanksVariable = "MSUITE_RECORD_RANKS";  // numbers separated by commas; empty: all
inline constexpr const char* kLevelVariable = "MSUITE_RECORD_LEVEL";  // level0, level1

}  // namespace ms::profile
