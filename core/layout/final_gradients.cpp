#include "core/layout/final_gradients.h"

#include <cstddef>

#include "core/layout/swap_plan.h"

namespace ms::layout {

std::vector<FinalGradients> final_gradients(const std::vector<ScheduleAction>& actions, int chunks) {
  std::vector<FinalGradients> result(actions.size());
  std::vector<bool> output_is_final(static_cast<size_t>(chunks)), layers_are_final(static_cast<size_t>(chunks));
  for (size_t i = actions.size(); i-- > 0;) {
    const ScheduleAction& action = actions[i];
    const auto chunk = static_cast<size_t>(action.chunk);
    const bool backward = begins_backward(action);
    if (!backward && action.kind != ScheduleAction::kBackwardWeight) continue;
    if (!layers_are_final[chunk]) result[i].layers = layers_are_final[chunk] = true;
    if (backward && !output_is_final[chunk]) result[i].output = output_is_final[chunk] = true;
  }
  return result;
}

}  // namespace ms::layout
