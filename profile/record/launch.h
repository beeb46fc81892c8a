// How msprof record starts a program so that it leaves a trace: mstrain by its own flags, any other MPI program with
// the library of preload.h in front of it.
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
  int64_t first_step = 0, last_step = -1;  // of mstrain, both recorded; none: its flags' defaults
  std::string level;                 // level0, level1, level2; empty: mstrain's default, and level1 of other programs
  std::vector<std::string> command;  // as the user would type it: mpirun -n 4 program ...
};

struct RecordedCommand {
  std::vector<std::string> words;                                // to execute
  std::vector<std::pair<std::string, std::string>> environment;  // to add
};

// library: libmsuite_record.so. Flags go behind mstrain, wherever it stands in the command; for another program the
// library's variables go into the environment, and by -x behind Open MPI's launchers, which take them to other nodes.
// Throws kInvalidArgument for steps of another program than mstrain, and for a level that it does not have.
RecordedCommand recorded_command(const RecordOptions& options, const std::filesystem::path& library);

// Runs it and waits; signals that end this program are passed on. Returns its exit code, 128 + signal if one ended it.
// Throws kIo, kNotFound if it cannot be started.
int run_recorded(const RecordedCommand& command);

}  // namespace ms::profile
