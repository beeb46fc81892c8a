#include "profile/analysis/pipeline_actions.h"

#include <algorithm>
#include <string>
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

// Times of the trace between start and end; as times of the reference clock.
std::vector<PipelineAction> actions_between(const RankTrace& trace, const RankClock& clock, int64_t start,
                                            int64_t end) {
  const std::vector<char> letters = letters_of(trace);
  std::vector<PipelineAction> actions;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const char letter = letters[trace.events.name[i]];
    if (letter == 0 || trace.side(i) != Side::kAnnotation) continue;
    if (trace.events.ts[i] < start || trace.events.end(i) > end) continue;
    const int64_t begin = clock.to_reference(unix_time(trace, trace.events.ts[i]));
    actions.push_back({begin, begin + trace.events.dur[i], letter});
  }
  std::ranges::sort(actions, {}, &PipelineAction::start);
  return actions;
}

void count_waits(const PipelineActions& all, StageActions& stage) {
  int64_t idle_since = all.start;
  StageWait wait = StageWait::kFill;
  for (const PipelineAction& action : stage.actions) {
    if (wait != StageWait::kFill) wait = wait_before(action.letter);
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

std::optional<PipelineActions> pipeline_actions(const std::vector<RankDevices>& ranks, const CrossRank& cross,
                                                const Pipeline& pipeline) {
  // The last step that each of these ranks has.
  std::map<int64_t, size_t> held;
  for (const RankDevices& rank : ranks) {
    if (!pipeline.by_rank.contains(rank.trace->rank)) continue;
    for (const Step& step : rank.view->steps) ++held[step.number];
  }
  PipelineActions result;
  for (const auto& [number, count] : held) {
    if (count == pipeline.by_rank.size()) result.step = number;
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankTrace& trace = *ranks[i].trace;
    const auto found = pipeline.by_rank.find(trace.rank);
    if (found == pipeline.by_rank.end()) continue;
    int64_t start = INT64_MIN, end = INT64_MAX;
    for (const Step& step : ranks[i].view->steps) {
      if (step.number == result.step) start = step.start, end = step.end;
    }
    const RankClock clock = cross.clocks.reliable ? cross.clocks.ranks[i] : RankClock{};
    StageActions stage{.rank = trace.rank, .stage = found->second.stage};
    stage.actions = actions_between(trace, clock, start, end);
    if (stage.actions.empty()) return std::nullopt;
    result.stages.push_back(std::move(stage));
  }
  if (result.stages.empty()) return std::nullopt;
  std::ranges::sort(result.stages, {}, [](const StageActions& s) { return std::pair(s.stage, s.rank); });
  result.start = INT64_MAX, result.end = INT64_MIN;
  for (const StageActions& stage : result.stages) {
    result.start = std::min(result.start, stage.actions.front().start);
    for (const PipelineAction& action : stage.actions) result.end = std::max(result.end, action.end);
  }
  for (StageActions& stage : result.stages) count_waits(result, stage);
  return result;
}

}  // namespace ms::profile
