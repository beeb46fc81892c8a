#include "profile/analysis/hta_breakdown.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profile/analysis/intervals.h"

namespace ms::profile {
namespace {

bool has(std::string_view name, std::string_view word, size_t from = 0) {
  return name.find(word, from) != std::string_view::npos;
}
bool communicates(std::string_view name) { return name.starts_with("nccl") && has(name, "Kernel", 4); }
bool computes(std::string_view name) {
  for (const char* copy : {"Memcpy", "Memset", "dma"}) {
    if (name.starts_with(copy)) return false;
  }
  return !communicates(name) && !has(name, "Memcpy") && !has(name, "Sync");
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

// Correlations of host events up to the end of the last step; nothing if there are fewer than two steps to tell it.
std::optional<std::unordered_set<uint32_t>> launched_in_steps(const RankTrace& trace) {
  const Events& events = trace.events;
  std::unordered_set<NameId> steps;
  int64_t last_end = INT64_MIN;
  const auto on_host = [&](size_t i) { return !trace.lanes[events.lane[i]].device; };
  for (size_t i = 0; i < events.size(); ++i) {
    if (!on_host(i) || !has(trace.names[events.name[i]], "ProfilerStep")) continue;
    steps.insert(events.name[i]);
    last_end = std::max(last_end, events.end(i));
  }
  if (steps.size() < 2) return std::nullopt;
  std::unordered_set<uint32_t> launched;
  for (size_t i = 0; i < events.size(); ++i) {
    if (on_host(i) && events.correlation[i] != 0 && events.ts[i] <= last_end) launched.insert(events.correlation[i]);
  }
  return launched;
}

}  // namespace

std::optional<HtaBreakdown> hta_breakdown(const RankTrace& trace) {
  const auto launched = launched_in_steps(trace);
  const Events& events = trace.events;
  const bool own = !trace.meta.empty();
  std::vector<Interval> all, computation, communication;
  for (size_t i = 0; i < events.size(); ++i) {
    const Lane& lane = trace.lanes[events.lane[i]];
    if (!lane.device || lane.id < 0) continue;
    if (trace.names[trace.categories[events.category[i]].name] == "gpu_user_annotation") continue;  // on no stream
    if (launched && events.correlation[i] != 0 && !launched->contains(events.correlation[i])) continue;
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
