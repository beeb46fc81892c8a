#include "train/memory/tensor_swap.h"

namespace ms::train {

void TensorSwap::start_out(const core::Tensor& tensor, SwappedTensor& swapped) {
  if (swapped.state != SwappedTensor::kInMemory || !tensor.defined() || tensor.size_bytes() < min_bytes_) return;
  swapped = {.stored = tier_.put({tensor.bytes(), static_cast<size_t>(tensor.size_bytes())}),
             .shape = tensor.shape(),
             .dtype = tensor.dtype(),
             .state = SwappedTensor::kLeaving};
}

void TensorSwap::finish_out(core::Tensor& tensor, SwappedTensor& swapped) {
  if (swapped.state != SwappedTensor::kLeaving) return;
  if (tier_.wait(swapped.stored)) {
    tensor.reset();
    swapped.state = SwappedTensor::kAway;
  } else {
    swapped = {};  // it stays, and the run ends after this step
  }
}

void TensorSwap::start_in(core::Tensor& tensor, SwappedTensor& swapped) {
  if (swapped.state != SwappedTensor::kAway) return;
  tensor = core::Tensor(arena_, swapped.dtype, swapped.shape, core::MemoryTag::kAct);
  tier_.fetch(swapped.stored, {tensor.bytes(), static_cast<size_t>(tensor.size_bytes())});
  swapped.state = SwappedTensor::kReturning;
}

bool TensorSwap::finish_in(SwappedTensor& swapped) {
  if (swapped.state != SwappedTensor::kReturning) return true;
  const bool there = tier_.wait(swapped.stored);
  swapped = {};
  return there;
}

}  // namespace ms::train
