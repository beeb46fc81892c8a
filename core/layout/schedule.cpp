#include "core/layout/schedule.h"

#include <algorithm>

namespace ms::layout {
namespace {

// The k-th forward of the interleaved order, or with chunks counted from the last, its k-th backward.
ScheduleAction interleaved_action(ScheduleAction::Kind kind, int64_t k, int stages, int chunks) {
  const int64_t round = int64_t{stages} * chunks;
  const auto chunk = static_cast<int>(k % round / stages);
  return {kind, k / round * stages + k % stages, kind == ScheduleAction::kForward ? chunk : chunks - 1 - chunk};
}

}  // namespace

std::string_view action_name(ScheduleAction::Kind kind) {
  constexpr std::string_view kNames[] = {"forward", "backward", "backward_input", "backward_weight", "recompute"};
  return kNames[kind];
}

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

std::vector<ScheduleAction> schedule_interleaved(int stage, int stages, int chunks, int64_t num_microbatches) {
  const int64_t total = num_microbatches * chunks;
  const int64_t warmup = std::min<int64_t>(total, 2 * (stages - 1 - stage) + int64_t{chunks - 1} * stages);
  std::vector<ScheduleAction> actions;
  const auto add = [&](ScheduleAction::Kind kind, int64_t k) {
    actions.push_back(interleaved_action(kind, k, stages, chunks));
  };
  for (int64_t k = 0; k < warmup; ++k) add(ScheduleAction::kForward, k);
  for (int64_t k = warmup; k < total; ++k) {
    add(ScheduleAction::kForward, k);
    add(ScheduleAction::kBackward, k - warmup);
  }
  for (int64_t k = total - warmup; k < total; ++k) add(ScheduleAction::kBackward, k);
  return actions;
}

std::vector<ScheduleAction> schedule_training(int stage, int stages, int chunks, int64_t num_microbatches) {
  return chunks == 1 ? schedule_1f1b(stage, stages, num_microbatches)
                     : schedule_interleaved(stage, stages, chunks, num_microbatches);
}

std::vector<ScheduleAction> schedule_forward_only(int stages, int chunks, int64_t num_microbatches) {
  std::vector<ScheduleAction> actions;
  for (int64_t k = 0; k < num_microbatches * chunks; ++k) {
    actions.push_back(interleaved_action(ScheduleAction::kForward, k, stages, chunks));
  }
  return actions;
}

int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule) {
  int64_t now = 0, peak = 0;
  for (const ScheduleAction& action : schedule) {
    if (action.kind == ScheduleAction::kForward) ++now;
    if (action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardWeight) --now;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace ms::layout
