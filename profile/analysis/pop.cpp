#include "profile/analysis/pop.h"

#include <algorithm>

namespace ms::profile {
namespace {

struct RankTime {
  Interval span{INT64_MAX, INT64_MIN};  // of device work, on the reference's clock
  IntervalSet busy;                     // any device event, on that clock
  IntervalSet computing;                // on the rank's own clock
};

// The runtime of the replay without transfers. A gain of a rank at an operation shifts everything after it; it cannot
// exceed the part of the operation that computing does not hide, or the part after the last arrival.
int64_t ideal_runtime(const std::vector<RankDevices>& ranks, const std::vector<RankTime>& times,
                      const MatchedComms& comms, const CrossRank& cross, int64_t first) {
  const std::vector<RankClock>& clocks = cross.clocks.ranks;
  struct Step {
    const CommInstance* instance;
    int64_t arrival;
  };
  std::vector<Step> order;
  for (const auto* instances : {&comms.collectives, &comms.messages}) {
    for (const CommInstance& instance : *instances) {
      if (instance.kind == CommKind::kRooted) continue;
      int64_t arrival = INT64_MIN;
      for (const CommPart& part : instance.parts) {
        arrival = std::max(arrival, clocks[part.rank].to_reference(part.start));
      }
      order.push_back({&instance, arrival});
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const Step& a, const Step& b) { return a.arrival < b.arrival; });
  std::vector<int64_t> gain(ranks.size());
  for (const Step& step : order) {
    int64_t ideal_end = INT64_MIN;
    const bool message = step.instance->kind == CommKind::kSend;
    for (size_t i = 0; i < step.instance->parts.size(); ++i) {
      const CommPart& part = step.instance->parts[i];
      if (message && i == 1) continue;  // the receiver does not delay the sender
      ideal_end = std::max(ideal_end, clocks[part.rank].to_reference(part.start) - gain[part.rank]);
    }
    for (const CommPart& part : step.instance->parts) {
      const RankTrace& trace = *ranks[part.rank].trace;
      const int64_t start = trace.events.ts[part.event], end = trace.events.end(part.event);
      const int64_t exposed = end - start - times[part.rank].computing.length_within({start, end});
      const int64_t own_start = clocks[part.rank].to_reference(part.start) - gain[part.rank];
      const int64_t own_end = own_start + (part.end - part.start);
      gain[part.rank] += std::clamp<int64_t>(own_end - std::max(ideal_end, own_start), 0, exposed);
    }
  }
  int64_t end = INT64_MIN;
  for (size_t r = 0; r < ranks.size(); ++r) end = std::max(end, times[r].span.end - gain[r]);
  return end - first;
}

}  // namespace

std::optional<Pop> pop_efficiencies(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                    const CrossRank& cross, core::ThreadPool& pool) {
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankDevices& rank) { return rank.view->devices.empty(); })) {
    return std::nullopt;
  }
  std::vector<RankTime> times(ranks.size());
  pool.run_parts(static_cast<int>(ranks.size()), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const RankTrace& trace = *ranks[r].trace;
    const RankClock clock = cross.clocks.reliable ? cross.clocks.ranks[r] : RankClock{};
    RankTime& out = times[r];
    std::vector<Interval> busy;
    for (const DeviceEvent& device : ranks[r].view->devices) {
      const int64_t start = clock.to_reference(unix_time(trace, trace.events.ts[device.event]));
      busy.push_back({start, start + trace.events.dur[device.event]});
      out.span = {std::min(out.span.start, busy.back().start), std::max(out.span.end, busy.back().end)};
    }
    out.busy = IntervalSet(std::move(busy));
    out.computing = time_of(trace, *ranks[r].view, DeviceClass::kComputation);
  });
  Pop out;
  int64_t first = INT64_MAX, end = INT64_MIN, sum = 0, most = 0;
  std::vector<Interval> busy;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<Interval>& own = times[r].busy.intervals();
    first = std::min(first, times[r].span.start);
    end = std::max(end, times[r].span.end);
    busy.insert(busy.end(), own.begin(), own.end());
    const int64_t useful = times[r].computing.length();
    out.useful.emplace_back(ranks[r].trace->rank, useful);
    sum += useful;
    most = std::max(most, useful);
  }
  if (ranks.empty() || most == 0 || end <= first) return std::nullopt;
  out.runtime = end - first;
  out.offload_idle = out.runtime - IntervalSet(std::move(busy)).length();
  const double average = static_cast<double>(sum) / static_cast<double>(ranks.size());
  const auto largest = static_cast<double>(most), runtime = static_cast<double>(out.runtime);
  out.load_balance = average / largest;
  out.communication_efficiency = largest / runtime;
  out.parallel_efficiency = average / runtime;
  if (ranks.size() > 1 && cross.clocks.reliable) {
    const int64_t ideal = std::max(ideal_runtime(ranks, times, comms, cross, first), most);
    out.serialization_efficiency = largest / static_cast<double>(ideal);
    out.transfer_efficiency = static_cast<double>(ideal) / runtime;
  }
  return out;
}

}  // namespace ms::profile
