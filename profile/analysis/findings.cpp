#include "profile/analysis/findings.h"

#include <algorithm>
#include <map>
#include <set>

namespace ms::profile {
namespace {

bool is_data(std::string_view name) {
  return name == "data" || name.starts_with("data-") || name.starts_with("data.") ||
         name.starts_with("enumerate(DataLoader)#") || name.starts_with("enumerate(DataPipe)#");
}

bool is_checkpoint(std::string_view name) { return name == "save" || name.starts_with("ckpt."); }

// Of the events of one class: the name whose intervals cover most of `time`.
std::string largest_in(const RankTrace& trace, const DeviceView& view, DeviceClass device_class,
                       const IntervalSet& time) {
  std::map<NameId, std::vector<Interval>> by_name;
  for (const DeviceEvent& device : view.devices) {
    if (device.device_class != device_class) continue;
    by_name[trace.events.name[device.event]].push_back({trace.events.ts[device.event], trace.events.end(device.event)});
  }
  std::string name;
  int64_t largest = 0;
  for (auto& [id, intervals] : by_name) {
    const int64_t ns = intersect(IntervalSet(std::move(intervals)), time).length();
    if (ns <= largest) continue;
    largest = ns;
    name = trace.names[id];
  }
  return name;
}

class Losses {
 public:
  void add(FindingKind kind, int rank, int64_t ns, std::string detail) {
    if (ns <= 0) return;
    Finding& finding = findings_[kind];
    finding.kind = kind;
    finding.lost_ns += ns;
    if (ns <= finding.worst_ns) return;
    finding.worst_ns = ns;
    finding.worst_rank = rank;
    finding.detail = std::move(detail);
  }
  std::vector<Finding> sorted(int64_t span_ns) {
    std::vector<Finding> out;
    for (auto& [kind, finding] : findings_) {
      finding.share = span_ns > 0 ? static_cast<double>(finding.lost_ns) / static_cast<double>(span_ns) : 0;
      out.push_back(std::move(finding));
    }
    std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.lost_ns > b.lost_ns; });
    return out;
  }

 private:
  std::map<FindingKind, Finding> findings_;
};

}  // namespace

HostPhases host_phases(const RankTrace& trace, HostPhase phase) {
  std::vector<bool> wanted_name(trace.names.size()), step_name(trace.names.size());
  for (NameId id = 0; id < trace.names.size(); ++id) {
    const std::string& name = trace.names[id];
    wanted_name[id] = phase == HostPhase::kData ? is_data(name) : is_checkpoint(name);
    step_name[id] = name.starts_with("ProfilerStep#") || name.starts_with("iteration ");
  }
  std::set<uint16_t> lanes;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.side(i) == Side::kAnnotation && step_name[trace.events.name[i]]) lanes.insert(trace.events.lane[i]);
  }
  std::vector<Interval> intervals;
  std::map<NameId, int64_t> by_name;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const NameId name = trace.events.name[i];
    if (trace.side(i) != Side::kAnnotation || !wanted_name[name] || lanes.count(trace.events.lane[i]) == 0) continue;
    intervals.push_back({trace.events.ts[i], trace.events.end(i)});
    by_name[name] += trace.events.dur[i];
  }
  HostPhases out{IntervalSet(std::move(intervals)), {}};
  int64_t longest = 0;
  for (const auto& [name, ns] : by_name) {
    if (ns <= longest) continue;
    longest = ns;
    out.longest = trace.names[name];
  }
  return out;
}

namespace {

struct Loss {
  FindingKind kind;
  int64_t ns;
  std::string detail;
};

struct RankLosses {
  int64_t span_ns = 0;
  std::vector<Loss> losses;
};

RankLosses losses_of(const RankTrace& trace, const DeviceView& view) {
  RankLosses out;
  const auto add = [&](FindingKind kind, int64_t ns, std::string detail) {
    out.losses.push_back({kind, ns, std::move(detail)});
  };
  const IntervalSet c = time_of(trace, view, DeviceClass::kComputation);
  const IntervalSet n = time_of(trace, view, DeviceClass::kCommunication);
  const IntervalSet m = time_of(trace, view, DeviceClass::kMemory);
  const IntervalSet cn = unite(c, n), busy = unite(cn, m);
  const Interval span{busy.empty() ? 0 : busy.intervals().front().start,
                      busy.empty() ? 0 : busy.intervals().back().end};
  out.span_ns = span.end - span.start;
  const IntervalSet exposed = subtract(n, c), copies = subtract(m, cn);
  add(FindingKind::kExposedCommunication, exposed.length(),
      largest_in(trace, view, DeviceClass::kCommunication, exposed));
  add(FindingKind::kExposedMemory, copies.length(), largest_in(trace, view, DeviceClass::kMemory, copies));
  IntervalSet idle = subtract(IntervalSet({span}), busy);
  for (const auto& [kind, phase] : {std::pair(FindingKind::kDataLoading, HostPhase::kData),
                                    std::pair(FindingKind::kCheckpoint, HostPhase::kCheckpoint)}) {
    HostPhases host = host_phases(trace, phase);
    add(kind, intersect(idle, host.time).length(), std::move(host.longest));
    idle = subtract(idle, host.time);
  }
  add(FindingKind::kIdle, idle.length(), {});
  return out;
}

}  // namespace

std::string_view finding_name(FindingKind kind) {
  constexpr std::string_view kNames[] = {
      "exposed_communication", "imbalance",       "data_loading", "checkpoint", "exposed_memory", "idle",
      "waiting_for_ranks",     "pipeline_bubble", "slow_link"};
  return kNames[static_cast<size_t>(kind)];
}

Imbalance imbalance(const std::vector<RankDevices>& ranks, core::ThreadPool& pool) {
  Imbalance out;
  out.computing_ns.resize(ranks.size());
  pool.run_parts(static_cast<int>(ranks.size()), [&](int rank) {
    const auto& [trace, view] = ranks[static_cast<size_t>(rank)];
    out.computing_ns[static_cast<size_t>(rank)] = {trace->rank,
                                                   time_of(*trace, *view, DeviceClass::kComputation).length()};
  });
  int64_t sum = 0, largest = 0;
  for (const auto& [rank, ns] : out.computing_ns) {
    sum += ns;
    if (ns <= largest) continue;
    largest = ns;
    out.slowest_rank = rank;
  }
  if (largest > 0)
    out.load_balance = static_cast<double>(sum) / static_cast<double>(ranks.size()) / static_cast<double>(largest);
  return out;
}

Findings find_losses(const std::vector<RankDevices>& ranks, const Imbalance& even, core::ThreadPool& pool) {
  std::vector<RankLosses> by_rank(ranks.size());
  pool.run_parts(static_cast<int>(ranks.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (!ranks[r].view->devices.empty()) by_rank[r] = losses_of(*ranks[r].trace, *ranks[r].view);
  });
  Losses losses;
  int64_t span_ns = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    span_ns += by_rank[r].span_ns;
    for (Loss& loss : by_rank[r].losses) losses.add(loss.kind, ranks[r].trace->rank, loss.ns, std::move(loss.detail));
  }
  if (ranks.size() > 1) {
    int64_t largest = 0, lost = 0;
    for (const auto& [rank, ns] : even.computing_ns) largest = std::max(largest, ns);
    for (const auto& [rank, ns] : even.computing_ns) lost += largest - ns;
    losses.add(FindingKind::kImbalance, even.slowest_rank, lost, {});
  }
  return losses.sorted(span_ns);
}

}  // namespace ms::profile
