// What msprof record tells its library about a run, by the environment: launch.h sets it, mpi_recording.h reads it.
#pragma once

namespace ms::profile {

inline constexpr const char* kPathVariable = "MSUITE_RECORD_PATH";    // folder of the traces; without it none is made
inline constexpr const char* kRanksVariable = "MSUITE_RECORD_RANKS";  // numbers with commas between; empty: all
inline constexpr const char* kLevelVariable = "MSUITE_RECORD_LEVEL";  // level0, level1

}  // namespace ms::profile
