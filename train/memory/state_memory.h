// The optimizer's state of a rank, by role: an fp32 number of each element that it owns. All of it is in memory or,
// with --swap-optimizer, on a tier outside memory but while an update goes over it, in chunks (MindSpeed's
// swap-optimizer, mindspeed/core/optimizer/swap_optimizer/swap_optimizer.py, whose tier is the host's memory and whose
// chunks are whole parameters; core/layout/state_chunks.h).
//
// While a chunk is updated, the next is read and the one before is written. How much is in memory at a
// time depends on sizes alone; an update waits for a slower disk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/layout/sharding.h"
#include "core/layout/state_chunks.h"
#include "core/sharded_tensor.h"
#include "core/tensor.h"
#include "train/memory/swap_tier.h"

namespace ms::train {

class StateMemory {
 public:
  // elements: of each state. In memory, all 0.
  StateMemory(core::Arena& arena, std::vector<core::TensorRole> roles, int64_t elements);

  const std::vector<core::TensorRole>& roles() const { return roles_; }
  // Elements [begin, end) of the i-th state, which must be in memory now.
  std::span<float> of(size_t i, int64_t begin, int64_t end) const;
  // The i-th state; undefined while it is not in memory as a whole.
  core::TensorView whole(size_t i) const;

  // From the next release() on the state is on the tier, which must outlive it, and an update has it in so many chunks.
  void swap_to(SwapTier& tier, int64_t times);
  // The whole state is in memory, for who saves it. Throws what the tier has failed with: it is not the state then.
  void hold();
  // It need not be any more: the process gives its memory back. is_changed: since hold(). What is then lost, the
  // tier's check() says.
  void release(bool is_changed);

  // Calls chunk(elements) for one range of elements after the other, each of which is in memory meanwhile. The tier may
  // be writing when it returns: finish_update() waits, and frees the memory.
  void update(core::FunctionRef<void(layout::FlatRange)> chunk);
  void finish_update();

 private:
  void allocate(int64_t elements);
  std::span<std::byte> bytes_at(size_t i, int64_t place, layout::FlatRange range) const;
  SwapTier::Stored& stored(int64_t chunk, size_t i) { return stored_[static_cast<size_t>(chunk) * roles_.size() + i]; }
  void start_in(int64_t chunk, int64_t place);  // of memory
  void start_out(int64_t chunk, int64_t place);
  void await(int64_t chunk);

  core::Arena& arena_;
  std::vector<core::TensorRole> roles_;
  int64_t elements_;
  std::vector<core::Tensor> tensors_;  // of each role; without memory while the state is on the tier
  layout::FlatRange window_;           // elements that may be used
  int64_t window_place_ = 0;           // where the first of them is in the tensors
  bool is_whole_ = true;               // in memory
  SwapTier* tier_ = nullptr;           // null: the state is always in memory
  layout::StateChunks chunks_;
  std::vector<SwapTier::Stored> stored_;  // of each chunk, of each role; empty before the first release()
};

}  // namespace ms::train
