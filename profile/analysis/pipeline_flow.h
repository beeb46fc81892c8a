// Follows the micro-batches through the actions of a pipeline.
//
// The annotations of mstrain's executor say what they work on. Of older traces, and of other programs' JSON, they have
// a name and times only, and what they work on follows from the messages: a forward reads what its stage has received,
// or begins a micro-batch (on the first stage), or reads the chunk before it on the same stage (where a V turns); a
// backward likewise, from the last chunk's forward on. The messages of one kind between two stages arrive in the order
// in which they were sent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ms::profile {

// Or a part of an action: a forward and a backward may be interleaved.
struct PipelineAction {
  int64_t start = 0, end = 0;           // ns
  char letter = 'F';                    // F, B, I (backward_input), W (backward_weight), R (recompute)
  int64_t microbatch = -1, chunk = -1;  // chunk of its stage; -1: unknown
};

// One side of a message between two stages. Times on the same clock as those of the stage's actions.
struct StageMessage {
  bool send = false;
  int peer = 0;                // rank
  int64_t start = 0, end = 0;  // ns; of a receive: from when it is posted until it has arrived
};

struct FlowStage {
  int rank = 0;
  int64_t stage = 0;
  std::vector<PipelineAction> actions;  // by start
  std::vector<StageMessage> messages;   // by start
};

struct PipelineFlow {
  int64_t microbatches = 0;  // of the step
  int64_t chunks = 0;        // of a stage
  bool in_a_v = false;       // every second chunk runs through the stages backwards
  // Idle share of the stages if these actions ran in this order, all of a kind in their mean time, messages in none.
  double ideal_ratio = 0;
};

// Sets micro-batch and chunk of all actions of one step, unless they have them. stages: all ranks of one or several
// pipelines of num_stages stages. Nullopt if the messages do not fit the actions, or some are missing; the actions are
// then unchanged. Weights (W) and recomputation
// (R) have no messages: they are taken in the order in which mstrain's schedules run them (core/layout/schedule.h).
// O(actions log actions).
std::optional<PipelineFlow> follow_microbatches(std::vector<FlowStage>& stages, int64_t num_stages);

}  // namespace ms::profile
