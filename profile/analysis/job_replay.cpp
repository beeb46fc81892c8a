#include "profile/analysis/job_replay.h"

#include <algorithm>
#include <map>

namespace ms::profile {
namespace {

// What is done at one moment of the trace, in the order in which it can be known: an activity of a rank's own ends,
// operations begin, waits end.
struct Moment {
  enum Kind : uint8_t { kOwnEnd, kBegin, kCommEnd };
  int64_t time;
  Kind kind;
  uint32_t rank, index;
};

}  // namespace

int64_t replay(const std::vector<RankActivities>& ranks, const NewLength& new_length) {
  std::vector<Moment> moments;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (uint32_t r = 0; r < ranks.size(); ++r) {
    for (uint32_t i = 0; i < ranks[r].comms.size(); ++i) {
      moments.push_back({ranks[r].comms[i].start, Moment::kBegin, r, i});
    }
    for (uint32_t i = 0; i < ranks[r].activities.size(); ++i) {
      const Activity& a = ranks[r].activities[i];
      first = std::min(first, a.start);
      moments.push_back({a.end, a.doing == Doing::kCommunicating ? Moment::kCommEnd : Moment::kOwnEnd, r, i});
    }
  }
  if (first == INT64_MAX) return 0;
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.kind < b.kind;
  });
  std::vector<int64_t> earlier(ranks.size());  // by how much each rank is ahead of the trace
  // When the last awaited part of an operation begins: in the trace, in the replay.
  std::map<uint32_t, std::pair<int64_t, int64_t>> begun;
  for (const Moment& m : moments) {
    if (m.kind == Moment::kBegin) {
      const CommSpan& comm = ranks[m.rank].comms[m.index];
      if (comm.operation == 0 || !comm.awaited) continue;
      auto& [was, is] = begun.try_emplace(comm.operation, INT64_MIN, INT64_MIN).first->second;
      was = std::max(was, comm.start);
      is = std::max(is, comm.start - earlier[m.rank]);
      continue;
    }
    const Activity& a = ranks[m.rank].activities[m.index];
    const int64_t start = a.start - earlier[m.rank];
    int64_t end = 0;
    if (a.doing == Doing::kCommunicating) {
      const CommSpan& comm = ranks[m.rank].comms[a.comm];
      const auto operation = begun.find(comm.operation);
      int64_t go = start;
      if (operation != begun.end() && comm.waits) {
        const auto& [was, is] = operation->second;
        go = std::max(start, is + (comm.ready - was));  // ready may be cut at the end of the operation
      }
      const int64_t moving = a.end - std::clamp(comm.ready, a.start, a.end);
      end = go + new_length(m.rank, a, moving);
    } else {
      end = start + new_length(m.rank, a, a.end - a.start);
    }
    earlier[m.rank] = a.end - end;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].activities.empty()) last = std::max(last, ranks[r].activities.back().end - earlier[r]);
  }
  return last - first;
}

}  // namespace ms::profile
