// Which of the tensors that a layer keeps for its backward leave memory until then (--swap-attention).
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/schedule.h"

namespace ms::layout {

struct SwapPlan {
  bool input_norm = false;           // what linear_qkv reads
  bool self_attention = false;       // queries, keys and values, the result, its statistics
  bool post_attention_norm = false;  // what linear_fc1 reads
  int64_t min_bytes = 512 << 10;     // smaller tensors stay

  bool any() const { return input_norm || self_attention || post_attention_norm; }
};

// Whether the action reads what a forward has kept: a backward, but not its second part.
constexpr bool begins_backward(const ScheduleAction& action) {
  return action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardInput;
}

// Of each micro-batch and chunk (microbatch x chunks + chunk): whether its backward is the action after its forward.
// The last layer is then needed at once, and stays.
std::vector<bool> turn_around(const std::vector<ScheduleAction>& actions, int chunks, int64_t num_microbatches);

}  // namespace ms::layout
