// Which of the tensors that a layer keeps leave memory until they are read: for its backward (--swap-attention), or for
// gradients of weights that are computed later (--use-nanopipe-swap); and whether the optimizer's state does until the
// next update (--swap-optimizer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/layout/saved_slots.h"
#include "core/layout/schedule.h"

namespace ms::layout {

// What leaves memory, what it takes of the tier, in whole blocks of its file, and in how many tensors.
struct SwappedBytes {
  int64_t of_memory = 0, of_tier = 0, tensors = 0;
  SwappedBytes& operator+=(const SwappedBytes& other) {
    of_memory += other.of_memory;
    of_tier += other.of_tier;
    tensors += other.tensors;
    return *this;
  }
};

struct SwapPlan {
  bool input_norm = false;           // what linear_qkv reads
  bool self_attention = false;       // queries, keys and values, the result, its statistics
  bool post_attention_norm = false;  // what linear_fc1 reads
  bool operands = false;             // of the gradients of weights, between both parts of a backward
  int64_t min_bytes = 512 << 10;     // smaller tensors of these stay
  int64_t optimizer_times = 0;       // chunks of the optimizer's state (state_chunks.h); 0: it stays

  bool activations() const { return input_norm || self_attention || post_attention_norm; }
  bool tensors() const { return activations() || operands; }  // of layers
  bool optimizer() const { return optimizer_times > 0; }
  bool any() const { return tensors() || optimizer(); }
  bool moves(SavedSlot slot) const;  // unless the slot is recomputed
  // Of tensors of these sizes in bytes.
  SwappedBytes moved(std::initializer_list<int64_t> tensors) const;
};

// Matrices of a layer, of whose gradients the operands leave and return together.
inline constexpr size_t kLinearsOfLayer = 4;

// Whether the action reads what a forward has kept: a backward, but not its second part.
constexpr bool begins_backward(const ScheduleAction& action) {
  return action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardInput;
}

// Of each micro-batch and chunk (microbatch x chunks + chunk): whether its backward is the action after its forward.
// The last layer is then needed at once, and stays.
std::vector<bool> turn_around(const std::vector<ScheduleAction>& actions, int chunks, int64_t num_microbatches);
// The same: whether its backward is split, and the second part not the action after the first. Operands that are needed
// at once stay.
std::vector<bool> weights_wait(const std::vector<ScheduleAction>& actions, int chunks, int64_t num_microbatches);

}  // namespace ms::layout
