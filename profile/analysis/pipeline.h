// Pipeline bubbles. Per stage: bubble = step - computing; the ideal bubble of 1F1B with p stages and m microbatches is
// (p - 1) / (m + p - 1) of the step, interleaved with v chunks (p - 1) / (v m + p - 1).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "profile/analysis/cross_rank.h"

namespace ms::profile {

struct PipelineRank {
  int64_t stage = 0;
  int64_t computing = 0, receive = 0, bubble = 0;  // ns over all steps; receive: sum of durations
  int64_t receives = 0;
};

struct Pipeline {
  int64_t stages = 0, microbatches = 0, steps = 1;
  int64_t step_ns = 0;  // mean: last end - first start over all stages
  double bubble_ratio = 0, ideal_ratio = 0;
  double imbalance = 0, transfer_and_gaps = 0;  // shares of the bubble above the ideal
  std::map<int, PipelineRank> by_rank;
};

// Stages are derived from who sends to whom, and which rank sends before it receives. Nullopt if no rank both sends and
// receives point-to-point, or if neighbours exchange (halos, rings).
std::optional<Pipeline> pipeline(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                 const CrossRank& cross);

}  // namespace ms::profile
