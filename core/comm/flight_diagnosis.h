// Which rank makes the others wait: pure functions from the flight recorders of the ranks to findings.
//
// A rank that waits points to those whose part of its operation is missing; they may wait themselves. The end of the
// chain is to blame: a rank that is dead, stopped, or in no communication, or one that is in another operation than its
// peers. Where two ranks disagree and no majority decides, the one that departs from what it did in earlier steps is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/flight_dump.h"

namespace ms::core {

// The surest first.
enum class FlightFault : uint8_t {
  kMismatch,  // it is in another operation, or in the same with another shape or dtype
  kDead,      // its process has died
  kStopped,   // its process is stopped
  kEnded,     // it has ended its run
  kAbsent,    // it has not come: it computes, or is stuck outside of communication
  kNoRecord,  // it has left no record
  kDeadlock,  // ranks wait for each other
};

struct FlightFinding {
  FlightFault fault = FlightFault::kAbsent;
  std::vector<int> culprits;  // world ranks; several if nothing decides between them
  // The operation for which others wait, or which they disagree on.
  std::string group;
  std::vector<int> members;
  std::string op;
  int64_t sequence = 0;
  bool is_message = false;
  std::string expected, seen;  // of a mismatch: "allreduce of 100 fp32", "allgather of 100 fp32"
  std::string caller;          // of the operation
  std::vector<int> direct;     // ranks that wait for the culprit in this operation
  std::vector<int> indirect;   // ranks that wait for those, and so on
  int64_t since_ns = 0;        // since 1970: when the first of `direct` began to wait; 0: unknown
  int64_t waited_ns = 0;       // the longest wait of `direct`, as far as is known
  std::string last;            // the culprit's last operation: "reduce_scatter 12 in group dp_cp"; empty: none
};

// Findings, the cause of the others first. ranks: expected number; 0: as the dumps say. Dumps: one per rank, ascending.
// Empty: nobody waits, and all agree; of a run that has ended as it should, also where records of ranks are missing.
std::vector<FlightFinding> diagnose_flight(const std::vector<FlightDump>& dumps, int world_size = 0);

// "has died", "is stopped", .. : what follows "rank 2" in a sentence.
std::string fault_text(const FlightFinding& finding);
// "allreduce 17 in group dp_cp [0, 1]"
std::string operation_text(const FlightFinding& finding);
// "allreduce of 100 fp32"
std::string signature_text(const FlightEntry& entry);

}  // namespace ms::core
