#include "profile/analysis/pipeline.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"

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

struct Stages {
  std::map<uint32_t, int64_t> of;  // position of each rank in its pipeline
  std::vector<uint32_t> ring;      // of one whose last stage sends to the first: its ranks by position
};

// Ranks that exchange with neighbours (halos, rings) all send first or all receive first; they form no pipeline and
// have no position.
Stages stages_of(const MatchedComms& comms) {
  const Neighbours neighbours(comms);
  Stages result;
  std::map<uint32_t, int64_t>& stages = result.of;
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
      result.ring.clear();
      for (int64_t stage = 0; stages.try_emplace(next, stage).second; ++stage) {
        result.ring.push_back(next);
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
  return result;
}

// "2, 3": the first ones of many.
std::string listed(const std::set<int>& ranks) {
  constexpr size_t kMost = 8;
  std::string text;
  size_t shown = 0;
  for (const int rank : ranks) {
    if (shown++ == kMost) return core::cat(text, " and ", ranks.size() - kMost, " more");
    text += core::cat(text.empty() ? "" : ", ", rank);
  }
  return text;
}
const char* word(const std::set<int>& ranks) { return ranks.size() == 1 ? "rank " : "ranks "; }

// Whether anyone both sends and receives.
bool answers(const MatchedComms& comms) {
  std::set<uint32_t> senders;
  for (const CommInstance& message : comms.messages) senders.insert(message.parts[0].rank);
  return std::ranges::any_of(comms.messages, [&](const CommInstance& m) { return senders.contains(m.parts[1].rank); });
}

struct Window {
  int64_t start = INT64_MAX, end = INT64_MIN;
};

// Sets the computing of each rank, and returns the steps that all these ranks have; without steps the whole trace is
// one.
std::map<int64_t, Window> measure_computing(const std::vector<RankDevices>& ranks, const CrossRank& cross,
                                            const std::map<uint32_t, int64_t>& stages, Pipeline& out) {
  std::map<int64_t, int64_t> held;
  for (const auto& [rank, stage] : stages) {
    for (const Step& step : ranks[rank].view->steps) ++held[step.number];
  }
  std::set<int64_t> wanted;
  for (const auto& [number, count] : held) {
    if (count == static_cast<int64_t>(stages.size())) wanted.insert(number);
  }
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
  return windows;
}

// Micro-batches and chunks from the number of messages. Each of v chunks passes m micro-batches on; in a ring the first
// stage sends v m hidden states to the second one, and receives (v - 1) m from the last one.
void count_microbatches(const MatchedComms& comms, const std::vector<uint32_t>& ring, Pipeline& out) {
  out.microbatches = out.messages, out.chunks = 1;
  if (ring.size() < 3) return;
  int64_t forward = 0, back = 0;
  for (const CommInstance& message : comms.messages) {
    const std::pair ends(message.parts[0].rank, message.parts[1].rank);
    forward += ends == std::pair(ring[0], ring[1]);
    back += ends == std::pair(ring.back(), ring[0]);
  }
  forward /= out.steps, back /= out.steps;
  const int64_t count = forward - back;
  const bool fits = count > 0 && forward % count == 0;
  out.ideal_from = IdealFrom::kMessages;
  out.microbatches = fits ? count : 0;
  out.chunks = fits ? forward / count : 0;
}

}  // namespace

std::string_view ideal_from_name(IdealFrom from) {
  constexpr std::string_view kNames[] = {"actions", "messages", "assumed_1f1b"};
  return kNames[static_cast<size_t>(from)];
}

void Pipeline::set_ideal(std::optional<double> ratio) {
  int64_t most = 0, sum = 0;
  for (const auto& [rank, row] : by_rank) most = std::max(most, row.computing), sum += row.computing;
  const double even =
      most == 0 ? 1 : static_cast<double>(sum) / static_cast<double>(by_rank.size()) / static_cast<double>(most);
  ideal_ratio = ratio;
  imbalance = (1 - even) * (1 - ratio.value_or(0));
  transfer_and_gaps = bubble_ratio - ratio.value_or(0) - imbalance;
}

std::optional<Pipeline> pipeline(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                 const CrossRank& cross) {
  if (!answers(comms)) return std::nullopt;
  const Stages stages = stages_of(comms);
  if (stages.of.empty()) return std::nullopt;
  Pipeline out;
  const std::map<int64_t, Window> windows = measure_computing(ranks, cross, stages.of, out);
  for (const CommInstance& message : comms.messages) {
    const CommPart& part = message.parts[1];
    if (!stages.of.contains(part.rank)) continue;
    PipelineRank& row = out.by_rank[ranks[part.rank].trace->rank];
    row.receive += part.end - part.start;
    ++row.receives;
  }
  int64_t all = 0;
  for (const auto& [step, window] : windows) all += window.end - window.start;
  if (windows.empty() || all <= 0) return std::nullopt;
  out.steps = static_cast<int64_t>(windows.size());
  out.step_ns = all / out.steps;
  int64_t bubble = 0, fewest = INT64_MAX;
  for (auto& [rank, row] : out.by_rank) {
    row.bubble = all - row.computing;
    bubble += row.bubble;
    out.stages = std::max(out.stages, row.stage + 1);
    fewest = std::min(fewest, row.receives);
    const auto untraced = comms.untraced.find(rank);
    if (untraced != comms.untraced.end()) out.missing.insert(untraced->second.begin(), untraced->second.end());
  }
  out.messages = std::max<int64_t>(fewest / out.steps, 1);
  out.bubble_ratio = static_cast<double>(bubble) / (static_cast<double>(out.by_rank.size()) * static_cast<double>(all));
  if (out.missing.empty()) count_microbatches(comms, stages.ring, out);
  std::optional<double> ideal;
  if (out.microbatches > 0)
    ideal = static_cast<double>(out.stages - 1) / static_cast<double>(out.chunks * out.microbatches + out.stages - 1);
  out.set_ideal(ideal);
  return out;
}

std::string missing_stages(const MatchedComms& comms) {
  std::set<int> traced, missing;
  for (const auto& [rank, others] : comms.untraced) {
    traced.insert(rank);
    missing.insert(others.begin(), others.end());
  }
  if (missing.empty()) return {};
  return core::cat("the pipeline of ", word(traced), listed(traced), " continues in ", word(missing), listed(missing),
                   ": give their traces too (mstrain records all ranks with --profile-ranks -1)");
}

}  // namespace ms::profile
