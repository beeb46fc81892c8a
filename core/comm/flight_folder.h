// Folders of flight records: a new one of each run, or one that the user has named, which one run at a time has for
// itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/lock_file.h"

namespace ms::core {

// "rank_00003.flight"
std::string flight_file_name(int rank);
// Beside the records: the line that the first rank to fail has reported.
inline constexpr const char* kFlightVerdict = "verdict";

// Where records go unless the user says: a new folder of this run in memory (/dev/shm), so that no write waits for a
// disk, or among temporary files. token: begins with the id of a process of the run. Of runs of this user that have
// left their records the kKeptFlightFolders newest stay; older ones are removed. Throws kIo.
inline constexpr size_t kKeptFlightFolders = 8;
std::filesystem::path make_default_flight_folder(std::string_view token);

// What a run finds in the folder that it is to write to.
struct FlightLeftovers {
  std::vector<std::filesystem::path> replaced;  // records of ours, of runs that write no more, and their verdict
  std::vector<std::filesystem::path> foreign;   // named as records, written by others: they stay
};

// rank 0: what all ranks of a run of world_size ranks will find there; another rank: its own file. Changes nothing.
// Throws kIo, naming the process, if a run that goes on writes there (as far as its processes can be seen from here);
// kInvalidArgument if this run would have to replace what no run of ours has written.
FlightLeftovers find_flight_leftovers(const std::filesystem::path& folder, int rank, int world_size);

// Removes `replaced`; what another rank has removed meanwhile does not matter. Throws kIo.
void remove_flight_leftovers(const FlightLeftovers& leftovers);

// Has the folder for this run until it is destroyed. Throws kIo, naming the process, if another run has it.
class FlightFolderLock {
 public:
  explicit FlightFolderLock(const std::filesystem::path& folder);
  ~FlightFolderLock();  // removes its file
  FlightFolderLock(const FlightFolderLock&) = delete;
  FlightFolderLock& operator=(const FlightFolderLock&) = delete;

 private:
  std::filesystem::path path_;
  LockFile lock_;
};

}  // namespace ms::core
