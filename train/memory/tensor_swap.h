// One tensor's way to a tier outside memory and back, step by step, for a policy that says when
// (train/memory/activation_swap.h, train/model/weight_gradients.h).
#pragma once

#include <cstdint>
#include <string>

#include "core/arena.h"
#include "core/tensor.h"
#include "train/memory/swap_tier.h"

namespace ms::train {

// Where a tensor is that is not, or not only, in memory.
struct SwappedTensor {
  SwapTier::Stored stored;
  core::Dims shape;
  core::DType dtype = core::DType::kFp32;
  enum State : uint8_t { kInMemory, kLeaving, kAway, kReturning } state = kInMemory;
};

class TensorSwap {
 public:
  // min_bytes: smaller tensors stay. folder, reserve_bytes, recorder: of the tier. arena: of the tensors. Throws like
  // SwapTier.
  TensorSwap(int64_t min_bytes, core::Arena& arena, const std::string& folder, int64_t reserve_bytes,
             core::trace::Recorder* recorder)
      : min_bytes_(min_bytes), arena_(arena), tier_(folder, reserve_bytes, recorder) {}

  // Each does something only in the state before its own, in this order.
  void start_out(const core::Tensor& tensor, SwappedTensor& swapped);  // kInMemory, of a tensor that is large enough
  void finish_out(core::Tensor& tensor, SwappedTensor& swapped);       // kLeaving: frees it
  void start_in(core::Tensor& tensor, SwappedTensor& swapped);         // kAway: allocates it
  bool finish_in(SwappedTensor& swapped);  // kReturning; false: what was stored is lost, and the tensor zeros

  SwapTier& tier() { return tier_; }
  const SwapTier& tier() const { return tier_; }

 private:
  int64_t min_bytes_;
  core::Arena& arena_;
  SwapTier tier_;
};

}  // namespace ms::train
