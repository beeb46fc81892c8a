#include "profile/analysis/findings.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "profile/analysis/step_names.h"

namespace ms::profile {
namespace {

// PyTorch wraps each batch that the training loop requests, on the loop's thread.
bool is_torch_loader(std::string_view name) {
  return name.starts_with("enumerate(DataLoader)#") || name.starts_with("enumerate(DataPipe)#");
}

bool is_data(std::string_view name) {
  return name == "data" || name.starts_with("data-") || name.starts_with("data.") || is_torch_loader(name);
}

bool is_checkpoint(std::string_view name) { return name == "save" || name.starts_with("ckpt."); }

// Among the events of one class, the name whose intervals cover most of `time`.
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

class Collector {
 public:
  void add(FindingKind kind, int rank, int64_t ns, std::string detail, IdleCause cause = IdleCause::kUnknown,
           std::string where = {}) {
    if (ns <= 0) return;
    Finding& finding = findings_[{kind, cause}];
    finding.kind = kind;
    finding.cause = cause;
    finding.lost_ns += ns;
    if (ns <= finding.worst_ns) return;
    finding.worst_ns = ns;
    finding.worst_rank = rank;
    finding.detail = std::move(detail);
    finding.where = where == finding.detail ? std::string() : std::move(where);
  }
  Findings sorted(int64_t wall_ns) {
    Findings out;
    for (auto& [kind, finding] : findings_) {
      finding.share = wall_ns > 0 ? static_cast<double>(finding.lost_ns) / static_cast<double>(wall_ns) : 0;
      out.push_back(std::move(finding));
    }
    std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.lost_ns > b.lost_ns; });
    return out;
  }

 private:
  std::map<std::pair<FindingKind, IdleCause>, Finding> findings_;
};

}  // namespace

HostPhases host_phases(const RankTrace& trace, HostPhase phase) {
  const std::vector<bool> step_name = step_names(trace);
  std::vector<bool> wanted_name(trace.names.size());
  for (NameId id = 0; id < trace.names.size(); ++id) {
    const std::string& name = trace.names[id];
    wanted_name[id] = phase == HostPhase::kData ? is_data(name) : is_checkpoint(name);
  }
  if (std::find(wanted_name.begin(), wanted_name.end(), true) == wanted_name.end()) return {};
  std::set<uint16_t> lanes;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Side side = trace.side(i);
    if (side != Side::kAnnotation && side != Side::kOperator) continue;  // old Kineto recorded annotations as operators
    if (step_name[trace.events.name[i]]) lanes.insert(trace.events.lane[i]);
  }
  std::vector<Interval> intervals;
  std::map<NameId, int64_t> by_name;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const NameId name = trace.events.name[i];
    if (!wanted_name[name]) continue;
    const bool loader = is_torch_loader(trace.names[name]);
    if (trace.side(i) != Side::kAnnotation && !(trace.side(i) == Side::kOperator && loader)) continue;
    // Without steps the loop's thread is unknown, but loader calls are on it.
    if (lanes.count(trace.events.lane[i]) == 0 && !(lanes.empty() && loader)) continue;
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
  int64_t wall_ns = 0, computing_ns = 0;
  std::vector<Loss> losses;
};

RankLosses losses_of(const RankTrace& trace, const DeviceView& view) {
  RankLosses out;
  const auto add = [&](FindingKind kind, int64_t ns, std::string detail) {
    out.losses.push_back({kind, ns, std::move(detail)});
  };
  IntervalSet busy = time_of(trace, view, DeviceClass::kComputation);
  out.computing_ns = busy.length();
  for (const auto& [device_class, kind] : {std::pair(DeviceClass::kCommunication, FindingKind::kExposedCommunication),
                                           std::pair(DeviceClass::kMemory, FindingKind::kExposedMemory)}) {
    const IntervalSet time = time_of(trace, view, device_class), exposed = subtract(time, busy);
    add(kind, exposed.length(), largest_in(trace, view, device_class, exposed));
    busy = unite(busy, time);
  }
  IntervalSet idle = wall_time(trace, view, busy);
  out.wall_ns = idle.length();
  idle = subtract(std::move(idle), busy);
  // Idle time of a step's data loading counts before that of a checkpoint.
  for (const auto& [phase, kind] : {std::pair(HostPhase::kData, FindingKind::kDataLoading),
                                    std::pair(HostPhase::kCheckpoint, FindingKind::kCheckpoint)}) {
    HostPhases host = host_phases(trace, phase);
    add(kind, intersect(idle, host.time).length(), std::move(host.longest));
    idle = subtract(std::move(idle), host.time);
  }
  return out;
}

}  // namespace

IdleReasons rank_idle_reasons(const RankTrace& trace, const DeviceView& view) {
  std::vector<Interval> events;
  events.reserve(view.devices.size());
  for (const DeviceEvent& device : view.devices) {
    events.push_back({trace.events.ts[device.event], trace.events.end(device.event)});
  }
  IntervalSet busy(std::move(events));
  IntervalSet idle = subtract(wall_time(trace, view, busy), busy);
  busy = {};
  for (const HostPhase phase : {HostPhase::kData, HostPhase::kCheckpoint}) {
    idle = subtract(std::move(idle), host_phases(trace, phase).time);
  }
  return idle_reasons(trace, view, idle);
}

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

Losses find_losses(const std::vector<RankDevices>& ranks, const std::vector<const IdleReasons*>& idle,
                   const Imbalance& even, core::ThreadPool& pool) {
  std::vector<RankLosses> by_rank(ranks.size());
  pool.run_parts(static_cast<int>(ranks.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (!ranks[r].view->devices.empty()) by_rank[r] = losses_of(*ranks[r].trace, *ranks[r].view);
  });
  Collector losses;
  Losses out;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int rank = ranks[r].trace->rank;
    out.time.wall_ns += by_rank[r].wall_ns;
    out.time.computing_ns += by_rank[r].computing_ns;
    for (Loss& loss : by_rank[r].losses) losses.add(loss.kind, rank, loss.ns, std::move(loss.detail));
    std::array<int64_t, kNumIdleCauses> by_cause{};
    std::array<const IdleReason*, kNumIdleCauses> largest{}, place{};
    for (const IdleReason& reason : idle[r]->reasons) {  // largest first
      const auto cause = static_cast<size_t>(reason.cause);
      by_cause[cause] += reason.ns;
      if (largest[cause] == nullptr) largest[cause] = &reason;
    }
    for (const IdleReason& reason : idle[r]->places) {
      const auto cause = static_cast<size_t>(reason.cause);
      if (place[cause] == nullptr) place[cause] = &reason;
    }
    for (size_t cause = 0; cause < kNumIdleCauses; ++cause) {
      losses.add(FindingKind::kIdle, rank, by_cause[cause], largest[cause] == nullptr ? "" : largest[cause]->name,
                 static_cast<IdleCause>(cause), place[cause] == nullptr ? "" : place[cause]->where);
    }
  }
  if (ranks.size() > 1) {
    int64_t largest = 0, lost = 0;
    for (const auto& [rank, ns] : even.computing_ns) largest = std::max(largest, ns);
    for (const auto& [rank, ns] : even.computing_ns) lost += largest - ns;
    losses.add(FindingKind::kImbalance, even.slowest_rank, lost, {});
  }
  out.findings = losses.sorted(out.time.wall_ns);
  return out;
}

}  // namespace ms::profile
