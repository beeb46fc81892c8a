#include "profile/analysis/pipeline.h"

#include <algorithm>
#include <deque>
#include <set>

namespace ms::profile {
namespace {

// Position of each rank along the chain of messages: the distance from the rank that sends first. Both directions carry
// messages (activations forward, gradients back), so neighbours are joined by either.
std::map<uint32_t, int64_t> stages_of(const MatchedComms& comms) {
  std::map<uint32_t, std::set<uint32_t>> neighbours;
  std::map<uint32_t, int64_t> first_send, first_receive;
  for (const CommInstance& message : comms.messages) {
    const uint32_t from = message.parts[0].rank, to = message.parts[1].rank;
    neighbours[from].insert(to);
    neighbours[to].insert(from);
    const auto earlier = [](std::map<uint32_t, int64_t>& times, uint32_t rank, int64_t t) {
      const auto [entry, added] = times.try_emplace(rank, t);
      if (!added) entry->second = std::min(entry->second, t);
    };
    earlier(first_send, from, message.parts[0].start);
    earlier(first_receive, to, message.parts[1].start);
  }
  std::map<uint32_t, int64_t> stages;
  const auto walk = [&](uint32_t begin) {
    std::deque<uint32_t> queue{begin};
    stages[begin] = 0;
    while (!queue.empty()) {
      const uint32_t rank = queue.front();
      queue.pop_front();
      for (const uint32_t next : neighbours[rank]) {
        if (stages.try_emplace(next, stages[rank] + 1).second) queue.push_back(next);
      }
    }
  };
  // The first stage computes before it receives anything: it has one neighbour and sends first.
  for (const auto& [rank, ends] : neighbours) {
    const auto sent = first_send.find(rank), received = first_receive.find(rank);
    if (ends.size() == 1 && stages.count(rank) == 0 && sent != first_send.end() &&
        (received == first_receive.end() || sent->second < received->second)) {
      walk(rank);
    }
  }
  for (const auto& [rank, ends] : neighbours) {
    if (stages.count(rank) == 0) walk(rank);  // a ring: any rank may be the first
  }
  return stages;
}

}  // namespace

std::optional<Pipeline> pipeline(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                 const CrossRank& cross) {
  if (comms.messages.empty()) return std::nullopt;
  std::map<uint32_t, int64_t> sends, receives;
  for (const CommInstance& message : comms.messages) {
    ++sends[message.parts[0].rank];
    ++receives[message.parts[1].rank];
  }
  const bool both =
      std::any_of(sends.begin(), sends.end(), [&](const auto& s) { return receives.count(s.first) != 0; });
  if (!both) return std::nullopt;

  const std::map<uint32_t, int64_t> stages = stages_of(comms);
  Pipeline out;
  // Steps that all these ranks have; without steps the whole trace is one.
  std::map<int64_t, int64_t> held;
  for (const auto& [rank, stage] : stages) {
    for (const Step& step : ranks[rank].view->steps) ++held[step.number];
  }
  std::set<int64_t> wanted;
  for (const auto& [number, count] : held) {
    if (count == static_cast<int64_t>(stages.size())) wanted.insert(number);
  }
  struct Window {
    int64_t start = INT64_MAX, end = INT64_MIN;
  };
  std::map<int64_t, Window> windows;
  constexpr int64_t kWhole = -1;
  for (const auto& [rank, stage] : stages) {
    const RankTrace& trace = *ranks[rank].trace;
    const DeviceView& view = *ranks[rank].view;
    const RankClock clock = cross.clocks.reliable ? cross.clocks.ranks[rank] : RankClock{};
    PipelineRank& row = out.by_rank[trace.rank];
    row.stage = stage;
    std::map<int64_t, std::vector<Interval>> computing;
    for (const DeviceEvent& device : view.devices) {
      int64_t step = kWhole;
      if (!wanted.empty()) {
        if (device.step == kNoStep) continue;
        step = view.steps[static_cast<size_t>(device.step)].number;
        if (wanted.count(step) == 0) continue;
      }
      const int64_t start = clock.to_reference(unix_time(trace, trace.events.ts[device.event]));
      const int64_t end = start + trace.events.dur[device.event];
      windows[step].start = std::min(windows[step].start, start);
      windows[step].end = std::max(windows[step].end, end);
      if (device.device_class == DeviceClass::kComputation) computing[step].push_back({start, end});
    }
    for (auto& [step, intervals] : computing) row.computing += IntervalSet(std::move(intervals)).length();
  }
  for (const CommInstance& message : comms.messages) {
    const CommPart& part = message.parts[1];
    PipelineRank& row = out.by_rank[ranks[part.rank].trace->rank];
    row.receive += part.end - part.start;
    ++row.receives;
  }
  int64_t all = 0;
  for (const auto& [step, window] : windows) all += window.end - window.start;
  if (windows.empty() || all <= 0) return std::nullopt;
  out.steps = static_cast<int64_t>(windows.size());
  out.step_ns = all / out.steps;
  int64_t bubble = 0, computing = 0, most = 0, fewest = INT64_MAX;
  for (auto& [rank, row] : out.by_rank) {
    row.bubble = all - row.computing;
    bubble += row.bubble;
    computing += row.computing;
    most = std::max(most, row.computing);
    out.stages = std::max(out.stages, row.stage + 1);
    fewest = std::min(fewest, row.receives);
  }
  const auto members = static_cast<double>(out.by_rank.size());
  out.microbatches = std::max<int64_t>(fewest / out.steps, 1);
  out.bubble_ratio = static_cast<double>(bubble) / (members * static_cast<double>(all));
  out.ideal_ratio = static_cast<double>(out.stages - 1) / static_cast<double>(out.microbatches + out.stages - 1);
  const double even = most == 0 ? 1 : static_cast<double>(computing) / members / static_cast<double>(most);
  out.imbalance = (1 - even) * (1 - out.ideal_ratio);
  out.transfer_and_gaps = out.bubble_ratio - out.ideal_ratio - out.imbalance;
  return out;
}

}  // namespace ms::profile
