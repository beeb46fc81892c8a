#include "core/layout/swap_plan.h"

#include "core/io/scratch_file.h"

namespace ms::layout {

bool SwapPlan::moves(SavedSlot slot) const {
  switch (kSavedSlots[slot_index(slot)].swapped_with) {
    case SwapModule::kNone:
      return false;
    case SwapModule::kInputNorm:
      return input_norm;
    case SwapModule::kSelfAttention:
      return self_attention;
    case SwapModule::kPostAttentionNorm:
      return post_attention_norm;
  }
  return false;
}

SwappedBytes SwapPlan::moved(std::initializer_list<int64_t> tensors) const {
  SwappedBytes sum;
  for (const int64_t bytes : tensors) {
    if (bytes > 0 && bytes >= min_bytes) sum += {bytes, core::ScratchFile::blocks_bytes(bytes), 1};
  }
  return sum;
}

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

std::vector<bool> weights_wait(const std::vector<ScheduleAction>& actions, int chunks, int64_t num_microbatches) {
  std::vector<bool> result(static_cast<size_t>(num_microbatches * chunks));
  for (size_t i = 0; i < actions.size(); ++i) {
    const ScheduleAction& now = actions[i];
    if (now.kind != ScheduleAction::kBackwardInput) continue;
    const ScheduleAction second{ScheduleAction::kBackwardWeight, now.microbatch, now.chunk};
    result[static_cast<size_t>(now.microbatch * chunks + now.chunk)] =
        i + 1 == actions.size() || !(actions[i + 1] == second);
  }
  return result;
}

}  // namespace ms::layout
