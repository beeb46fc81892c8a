#include "profile/analysis/job_replay.h"

#include <algorithm>
#include <unordered_map>

namespace ms::profile {
namespace {

// Traces in whole microseconds round starts and durations independently: what follows an operation may begin before its
// end.
constexpr int64_t kRounding = 2000;  // ns
constexpr size_t kNone = SIZE_MAX;

// The start times of the awaited parts of one operation.
struct Operation {
  int64_t was = INT64_MIN, is = INT64_MIN;  // the last one: in the trace, in the replay
  int64_t missing = 0;                      // parts that have not started
  std::vector<uint32_t> blocked;            // ranks that wait for them
};

struct RankState {
  std::vector<Activity> pieces;  // activities; all but communication is cut where an operation begins
  std::vector<size_t> by_end;    // comms, sorted by end
  std::vector<size_t> previous;  // for each comm: the previous one on its lane that had ended, or kNone
  std::vector<int64_t> begins;   // for each comm, in the replay
  size_t next_piece = 0, next_comm = 0;
  int64_t earlier = 0;  // how far the rank is ahead of the trace

  int64_t next_time(const RankActivities& rank) const {
    int64_t time = INT64_MAX;
    if (next_piece < pieces.size()) time = pieces[next_piece].end;
    if (next_comm < rank.comms.size()) time = std::min(time, rank.comms[next_comm].start);
    return time;
  }
};

class Replay {
 public:
  Replay(const std::vector<RankActivities>& ranks, const NewLength& new_length)
      : ranks_(ranks), new_length_(new_length), states_(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r) prepare(r);
  }

  int64_t run() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) runnable_.push_back(r);
    do {
      while (!runnable_.empty()) {
        const uint32_t rank = runnable_.back();
        runnable_.pop_back();
        while (advance(rank, /*forced=*/false)) {
        }
      }
    } while (force_one());
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (states_[r].pieces.empty()) continue;
      first = std::min(first, states_[r].pieces.front().start);
      last = std::max(last, states_[r].pieces.back().end - states_[r].earlier);
    }
    return first == INT64_MAX ? 0 : last - first;
  }

 private:
  void prepare(size_t r) {
    const RankActivities& rank = ranks_[r];
    RankState& state = states_[r];
    size_t comm = 0;
    for (Activity a : rank.activities) {
      while (comm < rank.comms.size() && rank.comms[comm].start <= a.start) ++comm;
      for (; a.doing != Doing::kCommunicating && comm < rank.comms.size() && rank.comms[comm].start < a.end; ++comm) {
        if (rank.comms[comm].start == a.start) continue;
        state.pieces.push_back({a.start, rank.comms[comm].start, a.doing, a.comm});
        a.start = rank.comms[comm].start;
      }
      state.pieces.push_back(a);
    }
    state.begins.resize(rank.comms.size());
    state.previous.assign(rank.comms.size(), kNone);
    std::unordered_map<uint32_t, size_t> last_of_lane;
    for (size_t c = 0; c < rank.comms.size(); ++c) {
      state.by_end.push_back(c);
      const auto [last, added] = last_of_lane.try_emplace(rank.comms[c].lane, c);
      if (!added && rank.comms[last->second].end <= rank.comms[c].start) state.previous[c] = last->second;
      last->second = c;
      if (rank.comms[c].operation != 0 && rank.comms[c].awaited) ++operations_[rank.comms[c].operation].missing;
    }
    std::stable_sort(state.by_end.begin(), state.by_end.end(),
                     [&](size_t a, size_t b) { return rank.comms[a].end < rank.comms[b].end; });
  }

  // Takes the rank's next step: an operation begins, or a piece ends. Returns false if nothing is left, or it must wait
  // for others.
  bool advance(uint32_t rank, bool forced) {
    RankState& state = states_[rank];
    const std::vector<CommSpan>& comms = ranks_[rank].comms;
    const bool piece = state.next_piece < state.pieces.size();
    if (state.next_comm < comms.size() &&
        (!piece || comms[state.next_comm].start < state.pieces[state.next_piece].end)) {
      return begin(rank, forced);
    }
    return piece && end(rank, forced);
  }

  // Whether all that the operations wait for has begun; if not, the rank is called again when it has.
  bool known(uint32_t rank, const std::vector<size_t>& comms, bool forced) {
    for (const size_t index : comms) {
      const CommSpan& comm = ranks_[rank].comms[index];
      if (forced || comm.operation == 0 || !comm.waits) continue;
      Operation& operation = operations_[comm.operation];
      if (operation.missing <= 0) continue;
      operation.blocked.push_back(rank);
      return false;
    }
    return true;
  }

  // When data started to move: in the trace (at most at `end`), and in the replay.
  struct Go {
    int64_t was = INT64_MIN, is = INT64_MIN;
  };
  Go go(uint32_t rank, size_t index, int64_t end) {
    const CommSpan& comm = ranks_[rank].comms[index];
    const Go own{std::min(comm.start, end), states_[rank].begins[index]};
    if (comm.operation == 0 || !comm.waits) return own;
    const Operation& operation = operations_[comm.operation];
    if (operation.was == INT64_MIN) return own;
    const int64_t was = std::min(operation.was, end);  // later only if the clocks are wrong
    return {std::max(own.was, was), std::max(own.is, operation.is + (was - operation.was))};
  }

  // The time at which the rank continues after `a`, at whose end the operations `ends` completed; `start` is that of
  // `a` in the replay. held: another operation, whose partner comes at `held_until`, delays the rank and completes
  // later.
  int64_t completed(uint32_t rank, const Activity& a, const std::vector<size_t>& ends, int64_t start, bool held = false,
                    int64_t held_until = 0) {
    int64_t end = start;
    Go all;  // operations of one MPI_Waitall complete after the last partner
    for (const size_t index : ends) {
      const CommSpan& comm = ranks_[rank].comms[index];
      const Go one = go(rank, index, a.end);
      const bool there = held ? comm.done <= held_until : comm.start < a.start && comm.done <= a.start;
      if (there) {  // its data was complete before the program asked
        end = std::max(end, one.is + (comm.done - std::min(one.was, comm.done)));
      } else {
        all = {std::max(all.was, one.was), std::max(all.is, one.is)};
      }
    }
    if (all.is != INT64_MIN) return std::max(end, all.is + new_length_(rank, a, a.end - all.was));
    if (held) return end;                             // the time until the other operation completes is not work
    return std::max(end, start + (a.end - a.start));  // without waiting, it keeps its length
  }

  bool begin(uint32_t rank, bool forced) {
    RankState& state = states_[rank];
    const size_t index = state.next_comm;
    const CommSpan& comm = ranks_[rank].comms[index];
    int64_t start = comm.start - state.earlier;
    if (const size_t before = state.previous[index]; before != kNone) {
      const CommSpan& previous = ranks_[rank].comms[before];
      const Activity whole{previous.start, previous.end, Doing::kCommunicating, static_cast<uint32_t>(before)};
      const std::vector<size_t> ends = ended_with(rank, whole, 0);
      if (!known(rank, ends, forced)) return false;
      start = std::max(start, completed(rank, whole, ends, INT64_MIN));
    }
    ++state.next_comm;
    state.begins[index] = start;
    if (comm.operation == 0 || !comm.awaited) return true;
    Operation& operation = operations_[comm.operation];
    operation.was = std::max(operation.was, comm.start);
    operation.is = std::max(operation.is, start);
    if (--operation.missing > 0) return true;
    runnable_.insert(runnable_.end(), operation.blocked.begin(), operation.blocked.end());
    operation.blocked.clear();
    return true;
  }

  bool end(uint32_t rank, bool forced) {
    RankState& state = states_[rank];
    const Activity& a = state.pieces[state.next_piece];
    const int64_t start = a.start - state.earlier;
    if (a.doing != Doing::kCommunicating) {
      state.earlier = a.end - (start + new_length_(rank, a, a.end - a.start));
      ++state.next_piece;
      return true;
    }
    const bool last =
        state.next_piece + 1 == state.pieces.size() || state.pieces[state.next_piece + 1].doing != a.doing;
    const std::vector<size_t> ends = ended_with(rank, a, last ? kRounding : 0);
    if (!known(rank, ends, forced)) return false;
    const std::vector<CommSpan>& comms = ranks_[rank].comms;
    const CommSpan& charged = comms[a.comm];
    const bool busy = state.next_comm < comms.size() && comms[state.next_comm].start < charged.end;
    const bool held = !ends.empty() && !busy && charged.ready > a.start && charged.end > a.end + kRounding;
    const int64_t end = completed(rank, a, ends, start, held, charged.ready);
    state.earlier = a.end - end;
    ++state.next_piece;
    return true;
  }

  std::vector<size_t> ended_with(uint32_t rank, const Activity& a, int64_t tolerance) const {
    const std::vector<CommSpan>& comms = ranks_[rank].comms;
    const std::vector<size_t>& order = states_[rank].by_end;
    auto next = std::partition_point(order.begin(), order.end(), [&](size_t c) { return comms[c].end < a.end; });
    std::vector<size_t> out;
    for (; next != order.end() && comms[*next].end <= a.end + tolerance; ++next) {
      if (comms[*next].start < a.end) out.push_back(*next);
    }
    return out;
  }

  // Wrong clocks may make ranks wait for each other in a cycle: release the earliest of them.
  bool force_one() {
    size_t earliest = ranks_.size();
    int64_t time = INT64_MAX;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const int64_t own = states_[r].next_time(ranks_[r]);
      if (own >= time) continue;
      time = own;
      earliest = r;
    }
    if (earliest == ranks_.size()) return false;
    advance(static_cast<uint32_t>(earliest), /*forced=*/true);
    runnable_.push_back(static_cast<uint32_t>(earliest));
    return true;
  }

  const std::vector<RankActivities>& ranks_;
  const NewLength& new_length_;
  std::vector<RankState> states_;
  std::unordered_map<uint32_t, Operation> operations_;
  std::vector<uint32_t> runnable_;
};

}  // namespace

int64_t replay(const std::vector<RankActivities>& ranks, const NewLength& new_length) {
  return Replay(ranks, new_length).run();
}

}  // namespace ms::profile
