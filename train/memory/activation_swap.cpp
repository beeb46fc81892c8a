#include "train/memory/activation_swap.h"

#include <cstring>
#include <utility>

#include "core/error.h"

namespace ms::train {
namespace {

// Calls visit(tensor, swapped) for each slot that is swapped.
template <class Visit>
void each_slot(LayerActivations& layer, const Visit& visit) {
  for (const layout::SavedSlotProperties& of : layout::kSavedSlots) {
    if (layer.slots[of.slot] != layout::SlotDecision::kSwap) continue;
    core::Tensor* tensor = layer.tensor(of.slot);
    MS_CHECK(tensor != nullptr, of.name, " cannot leave memory");
    visit(*tensor, layer.swapped[layout::slot_index(of.slot)]);
  }
}

}  // namespace

void ActivationSwap::swap_out(LayerActivations& layer) {
  MS_CHECK(leaving_ == nullptr, "another layer's tensors are leaving");
  leaving_ = &layer;
  each_slot(layer, [&](core::Tensor& tensor, SwappedTensor& swapped) { tensors_.start_out(tensor, swapped); });
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
  for (const layout::SavedSlotProperties& of : layout::kSavedSlots) {
    core::Tensor* tensor = of.swapped_with != layout::SwapModule::kNone ? layer.tensor(of.slot) : nullptr;
    if (tensor != nullptr && tensor->defined())
      std::memset(tensor->bytes(), 0, static_cast<size_t>(tensor->size_bytes()));
  }
}

}  // namespace ms::train
