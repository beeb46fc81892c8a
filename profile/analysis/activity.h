// What each rank does at every moment, on one clock: what analyses that follow causes from rank to rank walk on.
//
// The activities of a rank lie side by side, without gaps, from its first device event or step to its last. Computing
// comes before communication (what computing hides is not waited for), that before copies, and what is left is idle,
// told apart by the host phase of the thread that runs the steps. Of several open operations those count that complete
// before computing goes on, and of these the one whose partner comes last; once all partners are there, the one that
// completes first.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/cross_rank.h"

namespace ms::profile {

enum class Doing : uint8_t { kComputing, kCommunicating, kCopying, kLoadingData, kSaving, kIdle };

// A rank's part in an operation, in common time.
struct CommSpan {
  int64_t start = 0, end = 0;
  // Until then it waited for another rank to begin its part; from then on data moved. At most `end`.
  int64_t ready = 0;
  // When its data was there, at the latest: a request may have completed long before the program asked (MPI_Wait).
  int64_t done = 0;
  uint32_t waits_for = 0;  // index of that rank; meaningless if ready <= start
  uint32_t event = 0;      // of the rank's trace
  uint32_t lane = 0;       // of that event
  bool message = false;    // point-to-point, from `source` to `destination` (indices of ranks)
  uint32_t source = 0, destination = 0;
  uint32_t operation = 0;  // the same for all parts of one operation; 0: without a partner in the traces
  bool waits = false;      // for the others to begin, whoever is last; a sender only where sends are synchronous
  bool awaited = false;    // the other parts wait for this one to begin: all but leaves of rooted operations
};

struct Activity {
  int64_t start = 0, end = 0;
  Doing doing = Doing::kIdle;
  uint32_t comm = 0;  // index of RankActivities::comms, of kCommunicating
};

struct RankActivities {
  std::vector<Activity> activities;  // by time, end of one = start of the next
  std::vector<CommSpan> comms;       // by start

  // The first activity that ends after `time`.
  size_t at(int64_t time) const;
};

// One for each of `ranks`; comms and cross are of them, and cross.clocks must be reliable. O(n log n).
std::vector<RankActivities> activities(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                       const CrossRank& cross);

}  // namespace ms::profile
