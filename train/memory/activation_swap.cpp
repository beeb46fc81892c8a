#include "train/memory/activation_swap.h"

#include <cstring>
#include <utility>

namespace ms::train {
namespace {

// Calls visit(tensor, swapped) for each slot.
template <class Visit>
void each_slot(LayerActivations& layer, const Visit& visit) {
  for (size_t i = 0; i < kNumSavedSlots; ++i) visit(layer.slot(static_cast<SavedSlot>(i)), layer.swapped[i]);
}

}  // namespace

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
  leaving_ = &layer;
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    const auto slot = static_cast<SavedSlot>(i);
    if (moves(slot)) tensors_.start_out(layer.slot(slot), layer.swapped[i]);
  }
}

void ActivationSwap::settle() {
  LayerActivations* layer = std::exchange(leaving_, nullptr);
  if (layer == nullptr) return;
  each_slot(*layer, [&](core::Tensor& tensor, SwappedTensor& swapped) { tensors_.finish_out(tensor, swapped); });
}

void ActivationSwap::prefetch(LayerActivations& layer) {
  each_slot(layer, [&](core::Tensor& tensor, SwappedTensor& swapped) { tensors_.start_in(tensor, swapped); });
}

void ActivationSwap::swap_in(LayerActivations& layer) {
  prefetch(layer);
  bool whole = true;
  each_slot(layer, [&](core::Tensor&, SwappedTensor& swapped) { whole &= tensors_.finish_in(swapped); });
  if (whole) return;
  // The run ends after this step. Until then its numbers are wrong, but finite: zeros beside what was read might not
  // be.
  each_slot(layer, [](core::Tensor& tensor, SwappedTensor&) {
    if (tensor.defined()) std::memset(tensor.bytes(), 0, static_cast<size_t>(tensor.size_bytes()));
  });
}

}  // namespace ms::train
