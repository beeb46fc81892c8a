#include "profile/analysis/job_path.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "profile/analysis/job_replay.h"

namespace ms::profile {
namespace {

using core::cat;

constexpr size_t kTriedKernels = 5;
constexpr int64_t kFasterBy = 10;  // one tenth

class Job {
 public:
  Job(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross)
      : ranks_(ranks), cross_(cross), activities_(activities(ranks, comms, cross)) {}

  JobPath run() {
    out_.runtime_ns = replay(activities_, [](size_t, const Activity&, int64_t length) { return length; });
    walk();
    compose();
    ask();
    return std::move(out_);
  }

 private:
  // Walks backwards from the rank that ends last.
  void walk() {
    uint32_t rank = 0;
    int64_t t = INT64_MIN, first = INT64_MAX;
    for (uint32_t r = 0; r < activities_.size(); ++r) {
      if (activities_[r].activities.empty()) continue;
      first = std::min(first, activities_[r].activities.front().start);
      if (activities_[r].activities.back().end <= t) continue;
      t = activities_[r].activities.back().end;
      rank = r;
    }
    size_t hops = 0;  // hops without progress in time: more than the number of ranks only if the clocks are wrong
    while (t > first) {
      const std::vector<Activity>& own = activities_[rank].activities;
      const size_t i = activities_[rank].at(t - 1);
      if (i == own.size() || own[i].start >= t) {  // it had not begun: the time before is the job's start
        add({rank, first, t, Doing::kIdle, 0});
        return;
      }
      const Activity& a = own[i];
      int64_t from = a.start;
      bool waited = false;
      if (a.doing == Doing::kCommunicating) {
        const CommSpan& comm = activities_[rank].comms[a.comm];
        waited = comm.ready > comm.start && comm.ready > from && comm.waits_for != rank && hops <= ranks_.size();
        if (waited) from = std::min(comm.ready, t);
      }
      if (from < t) {
        add({rank, from, t, a.doing, a.comm});
        hops = 0;
      }
      t = from;
      if (!waited) continue;
      rank = activities_[rank].comms[a.comm].waits_for;
      ++hops;
    }
  }

  void add(PathPiece piece) { out_.pieces.push_back(piece); }

  int64_t common(uint32_t rank, int64_t ts) const {
    return cross_.clocks.ranks[rank].to_reference(unix_time(*ranks_[rank].trace, ts));
  }

  void compose() {
    std::reverse(out_.pieces.begin(), out_.pieces.end());
    std::map<std::pair<Doing, std::string>, int64_t> shares;
    std::vector<int64_t> by_rank(ranks_.size());
    std::vector<std::vector<Interval>> computing(ranks_.size());
    for (const PathPiece& piece : out_.pieces) {
      const int64_t ns = piece.end - piece.start;
      by_rank[piece.rank] += ns;
      switch (piece.doing) {
        case Doing::kComputing:
          computing[piece.rank].push_back({piece.start, piece.end});
          break;
        case Doing::kCommunicating: {
          const RankTrace& trace = *ranks_[piece.rank].trace;
          const uint32_t event = activities_[piece.rank].comms[piece.comm].event;
          shares[{piece.doing, trace.names[trace.events.name[event]]}] += ns;
          break;
        }
        case Doing::kCopying:
          shares[{piece.doing, "copies"}] += ns;
          break;
        case Doing::kLoadingData:
          shares[{piece.doing, "data loading"}] += ns;
          break;
        case Doing::kSaving:
          shares[{piece.doing, "checkpoints"}] += ns;
          break;
        case Doing::kIdle:
          shares[{piece.doing, "idle"}] += ns;
          break;
      }
    }
    // Kernels of one stream follow each other; where they overlap, the one that began first counts.
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<Interval>& pieces = computing[r];
      size_t next = 0;
      int64_t done = INT64_MIN;
      for (const DeviceEvent& device : ranks_[r].view->devices) {
        if (device.device_class != DeviceClass::kComputation) continue;
        const RankTrace& trace = *ranks_[r].trace;
        const int64_t start = common(r, trace.events.ts[device.event]), end = start + trace.events.dur[device.event];
        int64_t from = std::max(start, done);
        done = std::max(done, end);
        while (next < pieces.size() && pieces[next].end <= from) ++next;
        for (size_t i = next; i < pieces.size() && pieces[i].start < end; ++i) {
          const int64_t ns = std::min(end, pieces[i].end) - std::max(from, pieces[i].start);
          if (ns > 0) shares[{Doing::kComputing, trace.names[trace.events.name[device.event]]}] += ns;
        }
      }
    }
    for (const auto& [what, ns] : shares) out_.shares.push_back({what.second, what.first, ns});
    std::stable_sort(out_.shares.begin(), out_.shares.end(),
                     [](const PathShare& a, const PathShare& b) { return a.ns > b.ns; });
    for (size_t r = 0; r < ranks_.size(); ++r) out_.by_rank.emplace_back(cross_.ranks[r], by_rank[r]);
  }

  void try_change(std::string change, const NewLength& new_length) {
    const int64_t runtime = replay(activities_, new_length);
    if (runtime >= out_.runtime_ns) return;
    out_.what_if.push_back(
        {std::move(change), runtime, 1 - static_cast<double>(runtime) / static_cast<double>(out_.runtime_ns)});
  }

  // ns * part / whole, rounded: what-if results are exact where the lengths are.
  static int64_t scaled(int64_t ns, int64_t part, int64_t whole) {
    return static_cast<int64_t>((static_cast<__int128>(ns) * part + whole / 2) / whole);
  }

  void ask() {
    size_t tried = 0;
    for (const PathShare& share : out_.shares) {
      if (share.doing != Doing::kComputing || tried++ == kTriedKernels) continue;
      std::vector<IntervalSet> times;
      for (uint32_t r = 0; r < ranks_.size(); ++r) times.push_back(time_of_kernel(r, share.name));
      try_change(cat(share.name, " 10 % faster"), [&](size_t rank, const Activity& a, int64_t length) {
        if (a.doing != Doing::kComputing) return length;
        return length - overlap(times[rank], a) / kFasterBy;
      });
    }
    const auto without = [&](Doing what, const char* change) {
      try_change(change, [&](size_t, const Activity& a, int64_t length) { return a.doing == what ? 0 : length; });
    };
    try_change("transfers 10 % faster", [&](size_t, const Activity& a, int64_t length) {
      return a.doing == Doing::kCommunicating ? length - length / kFasterBy : length;
    });
    without(Doing::kLoadingData, "data at hand at once");
    without(Doing::kSaving, "no stops for checkpoints");
    std::vector<int64_t> computing(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const Activity& a : activities_[r].activities) {
        if (a.doing == Doing::kComputing) computing[r] += a.end - a.start;
      }
    }
    std::vector<int64_t> sorted = computing;
    std::sort(sorted.begin(), sorted.end());
    const int64_t median = sorted[(sorted.size() - 1) / 2];
    for (size_t slow = 0; slow < ranks_.size(); ++slow) {
      if (computing[slow] <= median) continue;
      try_change(cat("rank ", cross_.ranks[slow], " computes like the median rank"), [&](size_t rank, const Activity& a,
                                                                                         int64_t length) {
        return rank == slow && a.doing == Doing::kComputing ? scaled(length, median, computing[slow]) : length;
      });
    }
    std::stable_sort(out_.what_if.begin(), out_.what_if.end(),
                     [](const WhatIf& a, const WhatIf& b) { return a.runtime_ns < b.runtime_ns; });
  }

  IntervalSet time_of_kernel(uint32_t rank, const std::string& name) const {
    const RankTrace& trace = *ranks_[rank].trace;
    std::vector<Interval> out;
    for (const DeviceEvent& device : ranks_[rank].view->devices) {
      if (device.device_class != DeviceClass::kComputation || trace.names[trace.events.name[device.event]] != name) {
        continue;
      }
      const int64_t start = common(rank, trace.events.ts[device.event]);
      out.push_back({start, start + trace.events.dur[device.event]});
    }
    return IntervalSet(std::move(out));
  }

  static int64_t overlap(const IntervalSet& time, const Activity& a) {
    const std::vector<Interval>& all = time.intervals();
    auto next = std::partition_point(all.begin(), all.end(), [&](const Interval& i) { return i.end <= a.start; });
    int64_t ns = 0;
    for (; next != all.end() && next->start < a.end; ++next) {
      ns += std::min(next->end, a.end) - std::max(next->start, a.start);
    }
    return ns;
  }

  const std::vector<RankDevices>& ranks_;
  const CrossRank& cross_;
  const std::vector<RankActivities> activities_;
  JobPath out_;
};

}  // namespace

std::string_view doing_name(Doing doing) {
  constexpr std::string_view kNames[] = {"computing", "communication", "copies", "data_loading", "checkpoint", "idle"};
  return kNames[static_cast<size_t>(doing)];
}

JobPath job_path(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross) {
  if (!cross.clocks.reliable) {
    JobPath nothing;
    nothing.problem = cat("nothing is said across ranks: ", cross.clocks.why);
    return nothing;
  }
  return Job(ranks, comms, cross).run();
}

}  // namespace ms::profile
