#include "profile/analysis/blame.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/error.h"

namespace ms::profile {
namespace {

using core::cat;

using Sums = std::map<uint32_t, int64_t>;  // by rank

int64_t sum_of(const Sums& sums) {
  int64_t sum = 0;
  for (const auto& [rank, ns] : sums) sum += ns;
  return sum;
}

uint32_t largest_of(const Sums& sums) {
  const auto by_ns = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::max_element(sums.begin(), sums.end(), by_ns)->first;
}

// Exposed communication of all ranks by cause.
struct Causes {
  Sums waiting, bubble, data, checkpoints;              // by the rank that was waited for
  Sums computing;                                       // of waiting: while that rank computes
  std::map<std::pair<uint32_t, uint32_t>, Sums> links;  // by the waiting rank
  Sums charged;                                         // by rank: its exposed communication, except transfers
  Sums exposed;
};

class Follower {
 public:
  Follower(const std::vector<RankActivities>& activities, std::vector<int64_t> stages)
      : activities_(activities), stages_(std::move(stages)) {}

  Causes run() {
    for (waiting_ = 0; waiting_ < activities_.size(); ++waiting_) {
      for (const Activity& a : activities_[waiting_].activities) {
        if (a.doing != Doing::kCommunicating) continue;
        causes_.exposed[waiting_] += a.end - a.start;
        follow_comm(waiting_, a.comm, a.start, a.end, 0);
      }
    }
    return std::move(causes_);
  }

 private:
  void follow_comm(uint32_t rank, uint32_t index, int64_t start, int64_t end, size_t hops) {
    const CommSpan& comm = activities_[rank].comms[index];
    const int64_t ready = std::clamp(comm.ready, start, end);
    // With correct clocks the chain has no cycle: each hop leads to an operation that began earlier.
    if (ready > start && comm.waits_for != rank && hops < 2 * activities_.size()) {
      follow(comm.waits_for, start, ready, hops + 1);
    }
    if (comm.message) causes_.links[{comm.source, comm.destination}][waiting_] += end - ready;
  }

  // Charges [start, end) to what `rank` did while waiting_ waited for it.
  void follow(uint32_t rank, int64_t start, int64_t end, size_t hops) {
    const std::vector<Activity>& all = activities_[rank].activities;
    for (size_t i = activities_[rank].at(start); i < all.size() && all[i].start < end; ++i) {
      const int64_t from = std::max(start, all[i].start), to = std::min(end, all[i].end);
      switch (all[i].doing) {
        case Doing::kCommunicating:
          follow_comm(rank, all[i].comm, from, to, hops);
          break;
        case Doing::kLoadingData:
          causes_.data[rank] += to - from;
          causes_.charged[waiting_] += to - from;
          break;
        case Doing::kSaving:
          causes_.checkpoints[rank] += to - from;
          causes_.charged[waiting_] += to - from;
          break;
        case Doing::kComputing:
        case Doing::kCopying:
        case Doing::kIdle:
          causes_.charged[waiting_] += to - from;
          if (stages_[rank] != stages_[waiting_]) {
            causes_.bubble[rank] += to - from;
            break;
          }
          causes_.waiting[rank] += to - from;
          if (all[i].doing == Doing::kComputing) causes_.computing[rank] += to - from;
          break;
      }
    }
  }

  const std::vector<RankActivities>& activities_;
  const std::vector<int64_t> stages_;  // pipeline stage of each rank; all equal without a pipeline
  uint32_t waiting_ = 0;
  Causes causes_;
};

std::string ms(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f ms", static_cast<double>(ns) * 1e-6);
  return text;
}

// ", mostly in aten::tanh (12.345 ms more)"
std::string mostly_in(const SlowRank& slow) {
  return slow.kernel.empty() ? std::string()
                             : cat(", mostly in ", slow.kernel, " (", ms(slow.kernel_more_ns), " more)");
}

std::string why(const SlowRank& slow) {
  switch (slow.cause) {
    case SlowCause::kComputing:
      return cat("it computes ", ms(slow.more_ns), " longer than the median rank", mostly_in(slow));
    case SlowCause::kHostWait:
      return cat("its device waits ", ms(slow.more_ns), " longer for the host");
    case SlowCause::kOwnWaiting:
      return cat("it waits ", ms(slow.more_ns), " longer for another group");
    case SlowCause::kUnknown:
      break;
  }
  return "the traces do not show why";
}

std::string why_late(const std::vector<RankDevices>& ranks, const CrossRank& cross, const Causes& causes,
                     uint32_t index) {
  for (const SlowRank& slow : cross.slow_ranks) {
    if (slow.rank == cross.ranks[index]) return why(slow);
  }
  // The rank is not often the last at collectives: it comes late to messages, or seldom but by much.
  constexpr int64_t kOneIn = 3;
  const int64_t blame = causes.waiting.at(index);
  if (kOneIn * blame < sum_of(causes.waiting)) return "no rank is late more often than chance explains";
  const auto computing = causes.computing.find(index);
  const bool computes = computing != causes.computing.end() && 2 * computing->second > blame;
  if (!computes) return "it is idle meanwhile";
  const SlowRank slow = explain_late(ranks, cross, cross.ranks[index]);
  return slow.cause == SlowCause::kComputing && 2 * slow.more_ns > blame / static_cast<int64_t>(ranks.size())
             ? why(slow)
             : "it computes meanwhile";
}

std::string why_bubble(const std::vector<RankDevices>& ranks, const CrossRank& cross, const Pipeline& pipeline,
                       int rank) {
  int64_t sum = 0;
  for (const auto& [other, row] : pipeline.by_rank) sum += row.computing;
  const int64_t more = pipeline.by_rank.at(rank).computing - sum / static_cast<int64_t>(pipeline.by_rank.size());
  if (more <= 0 || pipeline.imbalance <= pipeline.transfer_and_gaps) return "the stages are even";
  return cat("its stage computes ", ms(more), " more than the average", mostly_in(explain_late(ranks, cross, rank)));
}

}  // namespace

void blame_waiting(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross,
                   const Pipeline* pipeline, Findings& findings) {
  if (!cross.clocks.reliable || ranks.size() < 2) return;
  const auto find = [&](FindingKind kind) {
    return std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.kind == kind; });
  };
  const auto exposed = find(FindingKind::kExposedCommunication);
  if (exposed == findings.end()) return;
  const double per_ns = exposed->share / static_cast<double>(exposed->lost_ns);

  std::vector<int64_t> stages(ranks.size());
  for (size_t r = 0; pipeline != nullptr && r < ranks.size(); ++r) {
    const auto row = pipeline->by_rank.find(cross.ranks[r]);
    if (row != pipeline->by_rank.end()) stages[r] = row->second.stage;
  }
  const Causes causes = Follower(activities(ranks, comms, cross), stages).run();

  int64_t left = exposed->lost_ns;
  Sums charged = causes.charged;
  std::vector<Finding> found;
  const auto take = [&](FindingKind kind, int64_t ns, int worst, int64_t worst_ns, std::string detail) {
    ns = std::min(ns, left);
    left -= ns;
    found.push_back({kind, ns, per_ns * static_cast<double>(ns), worst, worst_ns, std::move(detail)});
  };
  if (sum_of(causes.waiting) > 0) {
    const uint32_t late = largest_of(causes.waiting);
    take(FindingKind::kWaiting, sum_of(causes.waiting), cross.ranks[late], causes.waiting.at(late),
         why_late(ranks, cross, causes, late));
  }
  if (sum_of(causes.bubble) > 0) {
    const uint32_t stage = largest_of(causes.bubble);
    take(FindingKind::kPipelineBubble, sum_of(causes.bubble), cross.ranks[stage], causes.bubble.at(stage),
         why_bubble(ranks, cross, *pipeline, cross.ranks[stage]));
  }
  for (const SlowLink& slow : cross.slow_links) {
    for (const auto& [ends, by_rank] : causes.links) {
      if (cross.ranks[ends.first] != slow.source || cross.ranks[ends.second] != slow.destination) continue;
      int64_t lost = 0;
      for (const auto& [rank, ns] : by_rank) {
        const auto part = static_cast<int64_t>(static_cast<double>(ns) * (1 - slow.of_median));
        charged[rank] += part;
        lost += part;
      }
      if (lost <= 0) continue;
      take(FindingKind::kSlowLink, lost, slow.source, lost,
           cat(slow.source, " to ", slow.destination, " carries ",
               static_cast<double>(static_cast<int64_t>(slow.gb_per_s * 100)) / 100, " GB/s, ",
               static_cast<int64_t>(100 * slow.of_median), " % of the median link"));
    }
  }
  // Ranks that wait for one that loads or saves lose as much time as that rank itself.
  for (const auto& [kind, sums] :
       {std::pair(FindingKind::kDataLoading, &causes.data), std::pair(FindingKind::kCheckpoint, &causes.checkpoints)}) {
    if (sum_of(*sums) <= 0) continue;
    const uint32_t late = largest_of(*sums);
    take(kind, sum_of(*sums), cross.ranks[late], sums->at(late),
         cat("rank ", cross.ranks[late], " makes the others wait"));
    if (const auto own = find(kind); own != findings.end()) {
      own->lost_ns += found.back().lost_ns;
      own->share += found.back().share;
      found.pop_back();
    }
  }
  exposed->share = per_ns * static_cast<double>(left);
  exposed->lost_ns = left;
  // Use the remaining time of each rank, so that the worst is not more than the total.
  exposed->worst_ns = 0;
  for (const auto& [rank, ns] : causes.exposed) {
    const int64_t own = std::min(left, ns - charged[rank]);
    if (own <= exposed->worst_ns) continue;
    exposed->worst_ns = own;
    exposed->worst_rank = cross.ranks[rank];
  }
  std::erase_if(findings,
                [](const Finding& finding) { return finding.lost_ns <= 0 || finding.kind == FindingKind::kImbalance; });
  findings.insert(findings.end(), found.begin(), found.end());
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.lost_ns > b.lost_ns; });
}

}  // namespace ms::profile
