// What moving experts between the ranks of an expert-parallel group sends (train/optim/expert_moves.h): weights,
// master weights and what else the optimizer keeps.
#pragma once

#include <cstdint>

#include "core/layout/training_step.h"

namespace ms::layout {

// Of one rank, if all experts of all its layers leave it and as many arrive: no move sends more.
struct ExpertMoveBytes {
  int64_t experts = 0;   // that the rank has, of all its layers
  int64_t received = 0;  // from the ranks that had them: weights, and the part of the state that this rank keeps
  int64_t gathered = 0;  // before it, of what other replicas keep of the experts that leave, with ZeRO
};
ExpertMoveBytes largest_expert_move(const TrainingStep& step, int rank);

}  // namespace ms::layout
