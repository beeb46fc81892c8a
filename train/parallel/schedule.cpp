#include "train/parallel/schedule.h"

#include <algorithm>

namespace ms::train {

std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches) {
  const int64_t warmup = std::min<int64_t>(num_microbatches, stages - 1 - stage);
  std::vector<ScheduleAction> actions;
  for (int64_t m = 0; m < warmup; ++m) actions.push_back({ScheduleAction::kForward, m});
  for (int64_t m = warmup; m < num_microbatches; ++m) {
    actions.push_back({ScheduleAction::kForward, m});
    actions.push_back({ScheduleAction::kBackward, m - warmup});
  }
  for (int64_t m = num_microbatches - warmup; m < num_microbatches; ++m)
    actions.push_back({ScheduleAction::kBackward, m});
  return actions;
}

std::vector<ScheduleAction> schedule_forward_only(int64_t num_microbatches) {
  std::vector<ScheduleAction> actions;
  for (int64_t m = 0; m < num_microbatches; ++m) actions.push_back({ScheduleAction::kForward, m});
  return actions;
}

int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule) {
  int64_t now = 0, peak = 0;
  for (const ScheduleAction& action : schedule) {
    now += action.kind == ScheduleAction::kForward ? 1 : -1;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace ms::train
