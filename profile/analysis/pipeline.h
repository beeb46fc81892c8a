// Pipeline bubbles. Per stage: bubble = step - computing. The ideal bubble of 1F1B with p stages and m micro-batches is
// (p - 1) / (m + p - 1) of the step, interleaved with v chunks (p - 1) / (v m + p - 1); of any schedule whose actions
// are known it is that of the actions themselves (pipeline_flow.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "profile/analysis/cross_rank.h"

namespace ms::profile {

struct PipelineRank {
  int64_t stage = 0;
  int64_t computing = 0, receive = 0, bubble = 0;  // ns over all steps; receive: sum of durations
  int64_t receives = 0;
};

// Where micro-batches, chunks and ideal come from.
enum class IdealFrom : uint8_t {
  kActions,   // annotations of the actions (pipeline_actions.h)
  kMessages,  // messages: the last stage sends to the first, so that stages have several chunks, run in turn
  kAssumed,   // messages, each taken for a micro-batch of 1F1B: in a V the traces would look the same
};
std::string_view ideal_from_name(IdealFrom from);  // "actions", "messages", "assumed_1f1b"

struct Pipeline {
  int64_t stages = 0, steps = 1;
  int64_t messages = 0;                  // that a rank receives in a step, fewest of all ranks
  int64_t microbatches = 0, chunks = 0;  // of a step, of a stage; 0: unknown
  IdealFrom ideal_from = IdealFrom::kAssumed;
  int64_t step_ns = 0;  // mean: last end - first start over all stages
  double bubble_ratio = 0;
  std::optional<double> ideal_ratio;            // nullopt: unknown
  double imbalance = 0, transfer_and_gaps = 0;  // shares of the bubble above the ideal
  std::map<int, PipelineRank> by_rank;
  std::set<int> missing;  // ranks of the pipeline without a trace, as far as messages and their groups name them

  // Sets also the shares above it, for which an unknown ideal counts as 0.
  void set_ideal(std::optional<double> ratio);
};

// Stages are derived from who sends to whom, and which rank sends before it receives. Nullopt if no rank both sends and
// receives point-to-point, or if neighbours exchange (halos, rings).
std::optional<Pipeline> pipeline(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                 const CrossRank& cross);

// "the pipeline of rank 0 continues in ranks 1, 2, 3: give their traces too ..": who exchanges messages with the traced
// ranks and has no trace. Empty: nobody.
std::string missing_stages(const MatchedComms& comms);

}  // namespace ms::profile
