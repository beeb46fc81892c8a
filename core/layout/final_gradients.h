// After which actions of a stage's schedule the gradients of a step are final: nothing adds to them any more, so that
// data parallelism may reduce them.
#pragma once

#include <vector>

#include "core/layout/schedule.h"

namespace ms::layout {

// What an action leaves final of its chunk.
struct FinalGradients {
  bool output = false;  // of the final norm and the output layer, if the chunk has them
  bool layers = false;  // of the layers, one after another while the action runs
};

// Of each action of one stage.
std::vector<FinalGradients> final_gradients(const std::vector<ScheduleAction>& actions, int chunks);

}  // namespace ms::layout
