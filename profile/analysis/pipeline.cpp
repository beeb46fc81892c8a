#include "profile/analysis/pipeline.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

namespace ms::profile {
namespace {

// Who sends to whom, and the first send of each rank.
struct Neighbours {
  std::map<uint32_t, std::set<uint32_t>> of;  // both directions: activations forward, gradients backward
  std::map<uint32_t, int64_t> first_receive;
  std::map<uint32_t, std::pair<int64_t, uint32_t>> first_send;  // time, receiver

  explicit Neighbours(const MatchedComms& comms) {
    for (const CommInstance& message : comms.messages) {
      const CommPart &send = message.parts[0], &receive = message.parts[1];
      of[send.rank].insert(receive.rank);
      of[receive.rank].insert(send.rank);
      const std::pair sent(send.start, receive.rank);
      const auto [first, added] = first_send.try_emplace(send.rank, sent);
      if (!added) first->second = std::min(first->second, sent);
      const auto [received, is_new] = first_receive.try_emplace(receive.rank, receive.start);
      if (!is_new) received->second = std::min(received->second, receive.start);
    }
  }
  // The first stage computes before it receives anything.
  bool sends_first(uint32_t rank) const {
    const auto sent = first_send.find(rank), end = first_send.end();
    const auto received = first_receive.find(rank);
    return sent != end && (received == first_receive.end() || sent->second.first < received->second);
  }
};

std::vector<uint32_t> connected_to(const Neighbours& neighbours, uint32_t rank) {
  std::vector<uint32_t> out{rank};
  std::set<uint32_t> seen{rank};
  for (size_t i = 0; i < out.size(); ++i) {
    for (const uint32_t next : neighbours.of.at(out[i])) {
      if (seen.insert(next).second) out.push_back(next);
    }
  }
  return out;
}

// Position of each rank in its pipeline. Ranks that exchange with neighbours (halos, rings) all send first or all
// receive first; they form no pipeline and have no position.
std::map<uint32_t, int64_t> stages_of(const MatchedComms& comms) {
  const Neighbours neighbours(comms);
  std::map<uint32_t, int64_t> stages;
  std::set<uint32_t> done;
  for (const auto& [rank, ends] : neighbours.of) {
    if (done.count(rank) != 0) continue;
    const std::vector<uint32_t> members = connected_to(neighbours, rank);
    done.insert(members.begin(), members.end());
    std::vector<uint32_t> heads;
    std::copy_if(members.begin(), members.end(), std::back_inserter(heads),
                 [&](uint32_t member) { return neighbours.sends_first(member); });
    if (heads.size() != 1) continue;
    const bool closed = std::all_of(members.begin(), members.end(),
                                    [&](uint32_t member) { return neighbours.of.at(member).size() == 2; });
    if (closed) {  // interleaved: the last stage sends to the first, whose first send gives the direction
      uint32_t next = heads[0];
      for (int64_t stage = 0; stages.try_emplace(next, stage).second; ++stage) {
        const auto sent = neighbours.first_send.find(next);
        if (sent != neighbours.first_send.end()) next = sent->second.second;
      }
      continue;
    }
    for (const uint32_t member : connected_to(neighbours, heads[0])) {
      int64_t nearest = member == heads[0] ? -1 : INT64_MAX - 1;
      for (const uint32_t other : neighbours.of.at(member)) {
        const auto known = stages.find(other);
        if (known != stages.end()) nearest = std::min(nearest, known->second);
      }
      stages[member] = nearest + 1;
    }
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
  if (stages.empty()) return std::nullopt;
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
    if (stages.count(part.rank) == 0) continue;
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
