#include "profile/analysis/hta_breakdown.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "profile/intervals.h"

namespace ms::profile {
namespace {

// HTA's merge_kernel_intervals: unlike a union it keeps intervals that end before they begin. events: by start.
std::vector<Interval> merge(const std::vector<Interval>& events) {
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

}  // namespace

std::optional<HtaBreakdown> hta_breakdown(const HtaFrame& frame) {
  const Events& events = frame.trace->events;
  const bool own = !frame.trace->meta.empty();
  std::vector<Interval> all, computation, communication;
  for (const uint32_t i : frame.on_streams_by_start()) {
    const Interval time{events.ts[i], events.end(i)};
    const std::string_view name = frame.name(i);
    const bool ours = own && events.comm[i] != 0;  // exported under a name that HTA knows
    all.push_back(time);
    if (ours || hta_communicates(name)) communication.push_back(time);
    if (!ours && hta_computes(name)) computation.push_back(time);
  }
  if (all.empty()) return std::nullopt;
  const std::vector<Interval> merged = merge(all), computed = merge(computation), told = merge(communication);
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
