// Matches the communication events of several ranks: which of them are one operation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "profile/analysis/findings.h"

namespace ms::profile {

enum class CommKind : uint8_t { kSynchronising, kRooted, kSend, kReceive, kUnknown };

// One rank's part in an operation. Times are on the rank's own clock, relative to unix time 0 if the file contains it.
struct CommPart {
  uint32_t rank = 0;  // index in the given ranks
  uint32_t event = 0;
  int64_t start = 0, end = 0;
};

struct CommInstance {
  std::string type;   // allreduce, allgather, reduce_scatter, alltoall, broadcast, ..., send for point-to-point
  std::string group;  // name in the traces
  std::string key;    // what it was matched by
  CommKind kind = CommKind::kUnknown;
  int64_t bytes = -1;           // of one rank's input; -1: unknown
  int64_t group_size = -1;      // from the traces, -1: unknown
  int root = -1;                // of a rooted operation, index in the ranks; -1: unknown
  std::vector<CommPart> parts;  // by rank; of point-to-point: sender, receiver
};

struct MatchedComms {
  std::vector<CommInstance> collectives;  // at least two traced members, by start
  std::vector<CommInstance> messages;     // both sides traced, by start
  int64_t alone = 0;                      // events without a partner
  bool groups_incomplete = false;         // some groups have members without a trace
  // World ranks without a trace that exchange messages with a traced rank (the key), or are in the group of these
  // messages.
  std::map<int, std::set<int>> untraced;
};

// An operation is matched by the first of these keys that its members have: "Comms Id"; (group, type, Seq); Ascend's
// (group, op, n); (group, type, bytes, k-th in order); (group, type, k-th).
MatchedComms match_comms(const std::vector<RankDevices>& ranks);

// One communicator call, as recorded in its own trace.
struct CommCall {
  uint32_t event = 0;
  std::string type, group;
  int64_t bytes = -1;  // of the rank's input; -1: unknown
};
std::vector<CommCall> communication_calls(const RankTrace& trace, const DeviceView& view);

// Returns "allreduce" for "_allreduce_base", "AllReduce", "hcom_allReduce__586_0_1", ...; empty if the text contains no
// known operation.
std::string comm_type(std::string_view text);
// Bytes per element, by Kineto's or msuite's name of the type; 0: unknown.
int64_t element_bytes(std::string_view dtype);
// base + ts.
int64_t unix_time(const RankTrace& trace, int64_t ts);

}  // namespace ms::profile
