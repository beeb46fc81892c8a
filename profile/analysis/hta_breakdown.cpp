#include "profile/analysis/hta_breakdown.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profile/analysis/intervals.h"

namespace ms::profile {
namespace {

bool has(std::string_view name, std::string_view word) { return name.find(word) != std::string_view::npos; }
bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return name.starts_with(word); });
}

// The patterns of its hta/common/types.py. What is neither of these two is MEMORY or OTHER, which count as busy only.
bool communicates(std::string_view name) {
  return begins_with_any(name, {"nccl", "hip", "hccl"}) || has(name, "ncclKernel");
}
bool computes(std::string_view name) {
  for (const char* word : {"Memcpy", "Memset", "dma", "Sync"}) {
    if (has(name, word)) return false;
  }
  return !communicates(name) && !(name.starts_with("cuda") && has(name, "LaunchKernel")) &&
         !begins_with_any(name, {"Stream Wait Event", "runFunction", "job_exe", "packet", "pe_exe", "cpum_exe_subgraph",
                                 "collective_subgraph_execution"});
}

// Its merge_kernel_intervals: unlike a union it keeps intervals that end before they begin.
std::vector<Interval> merge(std::vector<Interval> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> groups;
  int64_t latest = INT64_MIN;
  for (const Interval& event : events) {
    if (groups.empty() || event.start > latest) {
      groups.push_back(event);
    } else {
      groups.back().end = std::max(groups.back().end, event.end);
    }
    latest = std::max(latest, event.end);
  }
  return groups;
}

int64_t sum_of(const std::vector<Interval>& groups) {
  int64_t sum = 0;
  for (const Interval& group : groups) sum += group.end - group.start;
  return sum;
}

// Time between consecutive starts and ends of both while both run.
int64_t overlap_of(const std::vector<Interval>& communication, const std::vector<Interval>& computation) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const auto& [groups, status] : {std::pair(&communication, 1), std::pair(&computation, 2)}) {
    for (const Interval& group : *groups) {
      changes.emplace_back(group.start, status);
      changes.emplace_back(group.end, -status);
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t sum = 0;
  int running = 0;
  for (size_t i = 0; i + 1 < changes.size(); ++i) {
    running += changes[i].second;
    if (running == 3) sum += changes[i + 1].first - changes[i].first;
  }
  return sum;
}

// Whether HTA sees an event on a stream: annotations of the device are on none, and -1 is none, but not 2^32 - 1.
bool on_stream(const RankTrace& trace, size_t i) {
  const Lane& lane = trace.lanes[trace.events.lane[i]];
  if (!lane.device || trace.names[trace.categories[trace.events.category[i]].name] == "gpu_user_annotation")
    return false;
  return lane.id >= 0 || trace.details[trace.events.details[i]].unsigned_stream;
}

// What counts of a trace with several steps: its other events, which it takes for the host's, up to a time, and of
// those on streams what they launched.
class StepFilter {
 public:
  StepFilter(const RankTrace& trace, bool keep_last) : trace_(trace) {
    std::unordered_set<NameId> steps;
    int64_t last_start = INT64_MIN, last_end = INT64_MIN;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      if (is_launched(i) || !has(name(i), "ProfilerStep#")) continue;
      steps.insert(trace.events.name[i]);
      last_start = std::max(last_start, trace.events.ts[i]);
      last_end = std::max(last_end, trace.events.end(i));
    }
    if (steps.size() < 2) return;
    end_ = keep_last ? last_end + 1 : last_start;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      if (!is_launched(i) && trace.events.ts[i] < end_) launched_.insert(trace.events.correlation[i]);
    }
  }

  bool keeps(size_t i) const {
    if (end_ == INT64_MAX) return true;
    return is_launched(i) ? launched_.contains(trace_.events.correlation[i]) : trace_.events.ts[i] < end_;
  }

 private:
  std::string_view name(size_t i) const { return trace_.names[trace_.events.name[i]]; }
  // Synchronisation of the device needs no correlation for it.
  bool is_launched(size_t i) const {
    return (on_stream(trace_, i) && trace_.events.correlation[i] != 0) || name(i) == "Event Sync" ||
           name(i) == "Context Sync";
  }

  const RankTrace& trace_;
  int64_t end_ = INT64_MAX;
  std::unordered_set<uint32_t> launched_;  // with 0, of events without a correlation
};

}  // namespace

std::optional<HtaBreakdown> hta_breakdown(const RankTrace& trace, bool keep_last_step) {
  const StepFilter filter(trace, keep_last_step);
  const Events& events = trace.events;
  const bool own = !trace.meta.empty();
  std::vector<Interval> all, computation, communication;
  for (size_t i = 0; i < events.size(); ++i) {
    if (!on_stream(trace, i) || !filter.keeps(i)) continue;
    const Interval time{events.ts[i], events.end(i)};
    const std::string_view name = trace.names[events.name[i]];
    const bool ours = own && events.comm[i] != 0;  // exported under a name that HTA knows
    all.push_back(time);
    if (ours || communicates(name)) communication.push_back(time);
    if (!ours && computes(name)) computation.push_back(time);
  }
  if (all.empty()) return std::nullopt;
  const std::vector<Interval> merged = merge(std::move(all)), computed = merge(std::move(computation)),
                              told = merge(std::move(communication));
  HtaBreakdown out;
  out.kernel = merged.back().end - merged.front().start;
  out.idle = out.kernel - sum_of(merged);
  out.compute = sum_of(computed);
  out.non_compute = out.kernel - out.compute - out.idle;
  out.communication = sum_of(told);
  out.overlap = overlap_of(told, computed);
  return out;
}

}  // namespace ms::profile
