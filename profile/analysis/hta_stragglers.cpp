#include "profile/analysis/hta_stragglers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "profile/analysis/hta_summary.h"

namespace ms::profile {
namespace {

// The step that contains each event; for stream events that of their launch; -1: none.
class StepOf {
 public:
  explicit StepOf(const HtaFrame& frame) : frame_(frame) {
    const Events& events = frame.trace->events;
    for (uint32_t event = 0; event < events.size(); ++event) {
      const int64_t number = hta_step_number(frame.name(event));
      if (number >= 0) steps_.push_back({events.ts[event], events.end(event), number});
    }
  }
  int64_t operator()(uint32_t event) const {
    if (!frame_.on_stream(event) || !frame_.trace->lanes[frame_.trace->events.lane[event]].device) return at(event);
    return frame_.stream(event) > 0 && frame_.linked(event) ? at(frame_.partners[event]) : -1;
  }

 private:
  struct Step {
    int64_t start = 0, end = 0, number = 0;
  };
  int64_t at(uint32_t event) const {
    const int64_t ts = frame_.trace->events.ts[event];
    int64_t number = -1;
    for (const Step& step : steps_) {
      if (step.start <= ts && ts < step.end) number = step.number;
    }
    return number;
  }

  const HtaFrame& frame_;
  std::vector<Step> steps_;
};

struct Kernel {
  int64_t start = 0, dur = 0;
};
using Place = std::pair<int64_t, std::string_view>;              // stream, name
using OfRanks = std::map<int, Kernel>;                           // by rank
using Candidates = std::map<Place, std::map<int64_t, OfRanks>>;  // by step

// The last long communication kernel of each rank, stream, step and name.
Candidates last_long_kernels(const std::vector<HtaFrame>& frames, const std::set<int64_t>& steps) {
  struct Row {
    int rank = 0;
    uint32_t event = 0;
    int64_t step = 0;
    const HtaFrame* frame = nullptr;
  };
  std::vector<Row> rows;
  std::set<int64_t> seen;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const HtaFrame& frame : frames) {
    const StepOf step_of(frame);
    for (const uint32_t event : frame.rows) {
      const int64_t step = step_of(event);
      if (!steps.contains(step)) continue;
      seen.insert(step);
      first = std::min(first, frame.trace->events.ts[event]);
      last = std::max(last, frame.trace->events.end(event));
      if (frame.on_stream(event) && step > 0 && frame.name(event).starts_with("ncclKernel")) {
        rows.push_back({frame.trace->rank, event, step, &frame});
      }
    }
  }
  Candidates out;
  const double shortest = 0.01 * (static_cast<double>(last - first) / static_cast<double>(seen.size()));
  for (const Row& row : rows) {
    const Events& events = row.frame->trace->events;
    if (row.frame->stream(row.event) <= 0 || static_cast<double>(events.dur[row.event]) < shortest) continue;
    out[{row.frame->stream(row.event), row.frame->name(row.event)}][row.step][row.rank] = {events.ts[row.event],
                                                                                           events.dur[row.event]};
  }
  return out;
}

// Standard deviation of durations across ranks, averaged over the steps that two ranks have.
std::optional<double> spread(const std::map<int64_t, OfRanks>& steps) {
  double sum = 0;
  int count = 0;
  for (const auto& [step, ranks] : steps) {
    std::vector<double> durations;
    for (const auto& [rank, kernel] : ranks) durations.push_back(static_cast<double>(kernel.dur));
    if (const auto deviation = sample_deviation(durations)) {
      sum += *deviation;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace

std::vector<int64_t> hta_profiler_steps(const std::vector<HtaFrame>& frames) {
  std::set<int64_t> steps;
  for (const HtaFrame& frame : frames) {
    for (const uint32_t event : frame.rows) {
      const int64_t number = hta_step_number(frame.name(event));
      if (number >= 0) steps.insert(number);
    }
  }
  return {steps.begin(), steps.end()};
}

std::vector<int> hta_stragglers(const std::vector<HtaFrame>& frames, size_t candidates) {
  const std::vector<int64_t> numbers = hta_profiler_steps(frames);
  const Candidates places = last_long_kernels(frames, {numbers.begin(), numbers.end()});
  const std::map<int64_t, OfRanks>* chosen = nullptr;
  double most = -1;
  for (const auto& [place, steps] : places) {
    const std::optional<double> found = spread(steps);
    if (!found || *found <= most) continue;
    most = *found;
    chosen = &steps;
  }
  if (chosen == nullptr) return {};
  std::map<int, int> suspected;  // number of times, by rank
  for (const auto& [step, ranks] : *chosen) {
    std::vector<int64_t> starts;
    for (const auto& [rank, kernel] : ranks) starts.push_back(kernel.start);
    if (starts.size() < candidates) return {};
    std::sort(starts.begin(), starts.end(), std::greater<>());
    for (const auto& [rank, kernel] : ranks) suspected[rank] += kernel.start >= starts[candidates - 1] ? 1 : 0;
  }
  std::vector<std::pair<int, int>> order;  // times, rank
  for (const auto& [rank, times] : suspected) order.emplace_back(times, rank);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<int> out;
  for (size_t i = 0; i < std::min(candidates, order.size()); ++i) out.push_back(order[i].second);
  return out;
}

}  // namespace ms::profile
