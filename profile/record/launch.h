// Starts a program for `msprof record` so that it writes a trace: mstrain with its own flags, any other MPI program
// with the preload library (preload.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ms::profile {

struct RecordOptions {
  std::filesystem::path folder;            // of the traces
  std::vector<int64_t> ranks;              // empty: all
  int64_t first_step = 0, last_step = -1;  // of mstrain, both recorded; -1: its defaults
  std::string level;                       // level0, level1, level2; empty: mstrain's default, level1 for others
  std::vector<std::string> command;        // as the user types it: mpirun -n 4 program ...
};

struct RecordedCommand {
  std::vector<std::string> words;                                // to execute
  std::vector<std::pair<std::string, std::string>> environment;  // to add
};

// library: path of libmsuite_record.so. Flags are inserted after mstrain, at its position in the command; for another
// program the library's variables go into the environment, and as -x after Open MPI's launchers, which forward them to
// other nodes. Throws kInvalidArgument for steps of a program other than mstrain, and for a level it does not have.
RecordedCommand recorded_command(const RecordOptions& options, const std::filesystem::path& library);

// Runs the command and waits; forwards signals that would end this program. Returns its exit code, or 128 + signal.
// Throws kIo, kNotFound if it cannot be started.
int run_recorded(const RecordedCommand& command);

}  // namespace ms::profile
