// What the stages of a pipeline do in a step, action by action, and what they wait for between the actions: from the
// annotations of mstrain's executor (train/loop/step.cpp): forward-microbatch, backward-microbatch,
// backward-input-microbatch, backward-weight-microbatch, recompute-microbatch. A forward and a backward that are
// interleaved have an annotation for each part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "profile/analysis/cross_rank.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pipeline_flow.h"

namespace ms::profile {

// What the idle time before an action is spent on: nothing has begun; waiting for hidden states or for a gradient from
// another stage; work outside the actions; waiting for the other stages to end.
enum class StageWait : uint8_t { kFill, kHidden, kGradient, kOther, kDrain };
inline constexpr int kNumStageWaits = 5;
std::string_view stage_wait_name(StageWait wait);  // "fill", ..

// The letters of PipelineAction.
inline constexpr std::string_view kActionLetters = "FBIWR";

struct StageActions {
  int rank = 0;
  int64_t stage = 0;
  std::vector<PipelineAction> actions;                // or parts of them, by start
  std::array<int64_t, kNumStageWaits> waits_ns = {};  // by StageWait
  struct Total {
    int64_t count = 0, ns = 0;  // of whole actions
  };
  std::array<Total, kActionLetters.size()> totals = {};  // by position in kActionLetters
};

struct PipelineActions {
  int64_t step = -1;                 // -1: the whole trace
  int64_t start = 0, end = 0;        // of the first and the last action of all stages
  std::vector<StageActions> stages;  // by stage, then rank
  std::optional<PipelineFlow> flow;  // nullopt: the messages do not fit the actions
};

// Of the last step that all ranks of the pipeline have. Nullopt without these annotations.
std::optional<PipelineActions> pipeline_actions(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                                const CrossRank& cross, const Pipeline& pipeline);

// Puts micro-batches, chunks and ideal of the actions in the place of those that `pipeline` has from its messages.
void use_actions(const PipelineActions& actions, Pipeline& pipeline);

}  // namespace ms::profile
