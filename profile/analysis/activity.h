// What each rank does at every moment, on a common clock; input of the analyses that follow causes across ranks.
//
// The activities of a rank are contiguous, from its first device event or step to its last. Priority: computing, then
// communication (the part hidden by computing is no wait), then copies; the rest is idle, divided by the host phase of
// the thread that runs the steps. Of several open operations only those count that complete before computing continues,
// and of these the one whose partner comes last; once all partners are there, the one that completes first.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/cross_rank.h"

namespace ms::profile {

enum class Doing : uint8_t { kComputing, kCommunicating, kCopying, kLoadingData, kSaving, kIdle };

// A rank's part in an operation, in common time.
struct CommSpan {
  int64_t start = 0, end = 0;
  // The rank waits for another rank to start its part until `ready`, then data moves. At most `end`.
  int64_t ready = 0;
  // The latest time at which its data was complete: a request may complete long before the program asks (MPI_Wait).
  int64_t done = 0;
  uint32_t waits_for = 0;  // rank index; meaningless if ready <= start
  uint32_t event = 0;      // in the rank's trace
  uint32_t lane = 0;       // of that event
  bool message = false;    // point-to-point, from `source` to `destination` (indices of ranks)
  uint32_t source = 0, destination = 0;
  uint32_t operation = 0;  // the same for all parts of one operation; 0: no partner in the traces
  bool waits = false;      // for the last of the others to start; of a sender, only if sends are synchronous
  bool awaited = false;    // the other parts wait for this one to start: all except leaves of rooted operations
};

struct Activity {
  int64_t start = 0, end = 0;
  Doing doing = Doing::kIdle;
  uint32_t comm = 0;  // of kCommunicating: index in RankActivities::comms
};

struct RankActivities {
  std::vector<Activity> activities;  // by time; each ends where the next starts
  std::vector<CommSpan> comms;       // by start

  // Index of the first activity that ends after `time`.
  size_t at(int64_t time) const;
};

// One entry per rank; comms and cross belong to `ranks`, and cross.clocks must be reliable. O(n log n).
std::vector<RankActivities> activities(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                       const CrossRank& cross);

}  // namespace ms::profile
