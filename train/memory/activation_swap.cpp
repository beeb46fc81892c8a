#include "train/memory/activation_swap.h"

#include <cstring>
#include <utility>

namespace ms::train {

bool ActivationSwap::moves(SavedSlot slot) const {
  switch (slot) {
    case SavedSlot::kInputNorm:
      return plan_.input_norm;
    case SavedSlot::kPostAttentionNorm:
      return plan_.post_attention_norm;
    default:
      return plan_.self_attention;
  }
}

void ActivationSwap::swap_out(LayerActivations& layer) {
  MS_CHECK(leaving_ == nullptr, "another layer's tensors are leaving");
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    const core::Tensor& tensor = layer.slot(static_cast<SavedSlot>(i));
    if (!moves(static_cast<SavedSlot>(i)) || !tensor.defined() || tensor.size_bytes() < plan_.min_bytes) continue;
    SwappedTensor& swapped = layer.swapped[i];
    swapped = {.stored = tier_.put({tensor.bytes(), static_cast<size_t>(tensor.size_bytes())}),
               .shape = tensor.shape(),
               .dtype = tensor.dtype(),
               .state = SwappedTensor::kLeaving};
    leaving_ = &layer;
  }
}

void ActivationSwap::settle() {
  LayerActivations* layer = std::exchange(leaving_, nullptr);
  if (layer == nullptr) return;
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    SwappedTensor& swapped = layer->swapped[i];
    if (swapped.state != SwappedTensor::kLeaving) continue;
    if (tier_.wait(swapped.stored)) {
      layer->slot(static_cast<SavedSlot>(i)).reset();
      swapped.state = SwappedTensor::kAway;
    } else {
      swapped = {};  // the tensor stays, and the run ends after this step
    }
  }
}

void ActivationSwap::prefetch(LayerActivations& layer) {
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    SwappedTensor& swapped = layer.swapped[i];
    if (swapped.state != SwappedTensor::kAway) continue;
    core::Tensor& tensor = layer.slot(static_cast<SavedSlot>(i));
    tensor = core::Tensor(arena_, swapped.dtype, swapped.shape, core::MemoryTag::kAct);
    tier_.fetch(swapped.stored, {tensor.bytes(), static_cast<size_t>(tensor.size_bytes())});
    swapped.state = SwappedTensor::kReturning;
  }
}

void ActivationSwap::swap_in(LayerActivations& layer) {
  prefetch(layer);
  bool lost = false;
  for (SwappedTensor& swapped : layer.swapped) {
    if (swapped.state != SwappedTensor::kReturning) continue;
    lost |= !tier_.wait(swapped.stored);
    swapped = {};
  }
  if (!lost) return;
  // The run ends after this step. Until then its numbers are wrong, but finite: zeros beside what was read might not
  // be.
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    const core::Tensor& tensor = layer.slot(static_cast<SavedSlot>(i));
    if (tensor.defined()) std::memset(tensor.bytes(), 0, static_cast<size_t>(tensor.size_bytes()));
  }
}

}  // namespace ms::train
