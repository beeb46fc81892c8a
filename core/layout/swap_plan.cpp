#include "core/layout/swap_plan.h"

namespace ms::layout {

std::vector<bool> turn_around(const std::vector<ScheduleAction>& actions, int chunks, int64_t num_microbatches) {
  std::vector<bool> result(static_cast<size_t>(num_microbatches * chunks));
  for (size_t i = 0; i + 1 < actions.size(); ++i) {
    const ScheduleAction& now = actions[i];
    const ScheduleAction& next = actions[i + 1];
    if (now.kind == ScheduleAction::kForward && begins_backward(next) && now.microbatch == next.microbatch &&
        now.chunk == next.chunk) {
      result[static_cast<size_t>(now.microbatch * chunks + now.chunk)] = true;
    }
  }
  return result;
}

}  // namespace ms::layout
