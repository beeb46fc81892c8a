#include "profile/analysis/pipeline_actions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace ms::profile {
namespace {

struct ActionName {
  std::string_view name;
  char letter;
};
constexpr ActionName kActionNames[] = {{"forward-microbatch", 'F'},
                                       {"backward-microbatch", 'B'},
                                       {"backward-input-microbatch", 'I'},
                                       {"backward-weight-microbatch", 'W'},
                                       {"recompute-microbatch", 'R'}};

// The letter of each name of a trace; 0: not an action.
std::vector<char> letters_of(const RankTrace& trace) {
  std::vector<char> letters(trace.names.size());
  for (size_t id = 0; id < letters.size(); ++id) {
    for (const ActionName& action : kActionNames) {
      if (trace.names[static_cast<NameId>(id)] == action.name) letters[id] = action.letter;
    }
  }
  return letters;
}

StageWait wait_before(char letter) {
  if (letter == 'F') return StageWait::kHidden;
  return letter == 'B' || letter == 'I' ? StageWait::kGradient : StageWait::kOther;
}

// A time window of one rank's own clock.
struct Window {
  int64_t start = INT64_MIN, end = INT64_MAX;
  bool holds(int64_t from, int64_t to) const { return from >= start && to <= end; }
};

std::vector<PipelineAction> actions_in(const RankTrace& trace, const Window& window) {
  const std::vector<char> letters = letters_of(trace);
  std::vector<PipelineAction> actions;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const char letter = letters[trace.events.name[i]];
    if (letter == 0 || trace.side(i) != Side::kAnnotation) continue;
    if (!window.holds(trace.events.ts[i], trace.events.end(i))) continue;
    const Details& details = trace.details[trace.events.details[i]];
    actions.push_back({trace.events.ts[i], trace.events.end(i), letter, details.microbatch, details.chunk});
  }
  std::ranges::sort(actions, {}, &PipelineAction::start);
  return actions;
}

// Messages of each of the ranks within its window. A send that begins in it may end later.
void add_messages(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                  const std::map<uint32_t, Window>& windows, std::map<uint32_t, FlowStage>& stages) {
  for (const CommInstance& message : comms.messages) {
    for (const bool send : {true, false}) {
      const CommPart &own = message.parts[send ? 0 : 1], &other = message.parts[send ? 1 : 0];
      if (!stages.contains(own.rank) || !stages.contains(other.rank)) continue;
      const RankTrace& trace = *ranks[own.rank].trace;
      const int64_t start = trace.events.ts[own.event];
      if (!windows.at(own.rank).holds(start, start)) continue;
      stages.at(own.rank).messages.push_back({send, ranks[other.rank].trace->rank, start, trace.events.end(own.event)});
    }
  }
  for (auto& [rank, stage] : stages) std::ranges::stable_sort(stage.messages, {}, &StageMessage::start);
}

void count_waits(const PipelineActions& all, StageActions& stage) {
  int64_t idle_since = all.start;
  StageWait wait = StageWait::kFill;
  std::set<std::tuple<char, int64_t, int64_t>> begun;
  for (const PipelineAction& action : stage.actions) {
    const bool begins = begun.emplace(action.letter, action.microbatch, action.chunk).second || action.microbatch < 0;
    if (wait != StageWait::kFill) wait = begins ? wait_before(action.letter) : StageWait::kOther;
    stage.waits_ns[static_cast<size_t>(wait)] += std::max<int64_t>(0, action.start - idle_since);
    idle_since = std::max(idle_since, action.end);
    wait = StageWait::kOther;
  }
  stage.waits_ns[static_cast<size_t>(StageWait::kDrain)] += all.end - idle_since;
}

}  // namespace

std::string_view stage_wait_name(StageWait wait) {
  constexpr std::string_view kNames[kNumStageWaits] = {"fill", "hidden", "gradient", "other", "drain"};
  return kNames[static_cast<size_t>(wait)];
}

namespace {

// The last step that all ranks of the pipeline have; -1: none.
int64_t last_step(const std::vector<RankDevices>& ranks, const Pipeline& pipeline) {
  std::map<int64_t, size_t> held;
  for (const RankDevices& rank : ranks) {
    if (!pipeline.by_rank.contains(rank.trace->rank)) continue;
    for (const Step& step : rank.view->steps) ++held[step.number];
  }
  int64_t last = -1;
  for (const auto& [number, count] : held) {
    if (count == pipeline.by_rank.size()) last = number;
  }
  return last;
}

// The stage as a result: its actions on the reference clock.
StageActions on_reference_clock(const RankTrace& trace, const RankClock& clock, FlowStage stage) {
  StageActions out{.rank = stage.rank, .stage = stage.stage};
  std::set<std::tuple<char, int64_t, int64_t>> counted;
  for (PipelineAction& action : stage.actions) {
    const int64_t begin = clock.to_reference(unix_time(trace, action.start)), ns = action.end - action.start;
    action.start = begin, action.end = begin + ns;
    StageActions::Total& total = out.totals[kActionLetters.find(action.letter)];
    const bool is_first = counted.emplace(action.letter, action.microbatch, action.chunk).second;
    total.count += is_first || action.microbatch < 0 ? 1 : 0;
    total.ns += ns;
  }
  out.actions = std::move(stage.actions);
  return out;
}

}  // namespace

std::optional<PipelineActions> pipeline_actions(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                                const CrossRank& cross, const Pipeline& pipeline) {
  PipelineActions result;
  result.step = last_step(ranks, pipeline);
  std::map<uint32_t, FlowStage> stages;  // by index in `ranks`
  std::map<uint32_t, Window> windows;
  for (uint32_t r = 0; r < ranks.size(); ++r) {
    const auto found = pipeline.by_rank.find(ranks[r].trace->rank);
    if (found == pipeline.by_rank.end()) continue;
    Window window;
    for (const Step& step : ranks[r].view->steps) {
      if (step.number == result.step) window = {step.start, step.end};
    }
    FlowStage stage{.rank = found->first, .stage = found->second.stage};
    stage.actions = actions_in(*ranks[r].trace, window);
    if (stage.actions.empty()) return std::nullopt;
    windows[r] = window;
    stages[r] = std::move(stage);
  }
  if (stages.empty()) return std::nullopt;
  add_messages(ranks, comms, windows, stages);
  std::vector<FlowStage> flow;
  for (auto& [r, stage] : stages) flow.push_back(std::move(stage));
  if (pipeline.missing.empty()) result.flow = follow_microbatches(flow, pipeline.stages);

  auto stage = flow.begin();
  for (const auto& [r, window] : windows) {
    const RankClock clock = cross.clocks.reliable ? cross.clocks.ranks[r] : RankClock{};
    result.stages.push_back(on_reference_clock(*ranks[r].trace, clock, std::move(*stage++)));
  }
  std::ranges::sort(result.stages, {}, [](const StageActions& s) { return std::pair(s.stage, s.rank); });
  result.start = INT64_MAX, result.end = INT64_MIN;
  for (const StageActions& of : result.stages) {
    result.start = std::min(result.start, of.actions.front().start);
    for (const PipelineAction& action : of.actions) result.end = std::max(result.end, action.end);
  }
  for (StageActions& of : result.stages) count_waits(result, of);
  return result;
}

void use_actions(const PipelineActions& actions, Pipeline& pipeline) {
  pipeline.ideal_from = IdealFrom::kActions;
  pipeline.microbatches = actions.flow ? actions.flow->microbatches : 0;
  pipeline.chunks = actions.flow ? actions.flow->chunks : 0;
  pipeline.set_ideal(actions.flow ? std::optional(actions.flow->ideal_ratio) : std::nullopt);
}

}  // namespace ms::profile
