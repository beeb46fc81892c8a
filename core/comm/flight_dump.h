// What a flight recorder has of one rank, whichever program wrote it: ours (flight_recorder.h), or PyTorch
// (profile/flight/torch_dump.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/process_home.h"

namespace ms::core {

struct FlightGroup {
  std::string name;        // "tp"
  std::vector<int> ranks;  // world ranks of the members, in group-rank order
  bool operator==(const FlightGroup&) const = default;
};

enum class FlightState : uint8_t { kScheduled, kStarted, kCompleted };  // torch's words; kStarted: data has moved

struct FlightEntry {
  int64_t number = 0;  // order of posting in the rank
  int32_t group = -1;  // index in FlightDump::groups; < 0: unknown
  std::string op;      // "allreduce"
  bool is_message = false, is_send = false;
  int64_t sequence = 0;  // of a collective: in its group; of a message: with this peer, direction and tag
  int tag = 0;
  int peer = -1;      // world rank of the other end of a message
  std::string shape;  // what is printed: "1024", "[4, 8]"
  std::string dtype;
  // What all members of a collective, or both ends of a message, must have alike besides op and dtype; empty: nothing.
  std::string agreed;
  int64_t bytes = -1;  // < 0: unknown
  FlightState state = FlightState::kScheduled;
  int64_t posted_ns = 0, started_ns = 0, completed_ns = 0;  // since 1970; 0: not yet, or unknown
  std::string caller;                                       // "forward, micro-batch 3, iteration 12"
  bool completed() const { return state == FlightState::kCompleted; }
};

struct FlightDump {
  int rank = 0, world_size = 0;  // world_size 0: unknown
  std::string source;            // file
  uint64_t job = 0;              // of the run; 0: unknown
  int64_t opened_ns = 0;         // since 1970
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;  // ascending number
  // Of our files only.
  ProcessState process = ProcessState::kUnknown;  // now
  bool ended = false;                             // the run has ended here as it should
  bool failed = false;                            // this rank has reported an error
  int64_t pid = 0;
  std::string host;
  int64_t waits_for = 0;                       // number of the entry in whose wait the rank is; 0: none
  int64_t waits_since_ns = 0;                  // since 1970
  int64_t waits_until_ns = 0;                  // since 1970: when the wait was last seen; 0: unknown
  bool knows_waits = false;                    // waits_for means something
  int64_t last_wait = 0, waited_until_ns = 0;  // the last wait, which may go on: number of its entry, and its end
  int64_t failed_ns = 0;                       // since 1970: when the rank reported an error; 0: it has not

  const FlightEntry* waited() const;
  // How long the rank has waited in that entry, as far as is known; 0: it does not, or unknown.
  int64_t waited_ns() const;
};

// Reads a file of ours, which the rank may be writing meanwhile: operations that change are left out. Throws kNotFound,
// kIo, kCorruptData naming the file.
FlightDump read_flight_file(const std::filesystem::path& path);
// Whether the file begins as ours do.
bool is_flight_file(const std::filesystem::path& path);

// Of a run that has failed: makes the dumps what they were when the first rank reported it. Afterwards ranks have been
// ended, or, if they had been stopped, gone on for a while.
void rewind_to_failure(std::vector<FlightDump>& dumps);

// Leaves the dumps of the run that began last.
void keep_newest_run(std::vector<FlightDump>& dumps);

// All files of the folder that can be read, of the newest run in it; those that cannot are left out.
std::vector<FlightDump> read_flight_folder(const std::filesystem::path& folder);

}  // namespace ms::core
