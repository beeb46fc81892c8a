#include "core/layout/saved_slots.h"

namespace ms::layout {
namespace {

consteval bool rows_are_in_order() {
  for (size_t i = 0; i < kNumSavedSlots; ++i) {
    if (slot_index(kSavedSlots[i].slot) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "kSavedSlots has a row for each SavedSlot, in its order");

}  // namespace

std::string_view decision_name(SlotDecision decision) {
  constexpr std::string_view kNames[] = {"keep", "recompute", "swap"};
  return kNames[static_cast<size_t>(decision)];
}

void LayerSlots::recompute(RecomputedParts parts) {
  for (const SavedSlotProperties& of : kSavedSlots) {
    if ((of.recomputed_with & parts) != 0) decide(of.slot, SlotDecision::kRecompute);
  }
}

LayerSlots LayerSlots::refilled(bool post_norm) const {
  LayerSlots result = *this;
  result.runs_again_ = false;
  if (post_norm) return result;
  using enum SavedSlot;
  for (const SavedSlot slot : {kPostAttentionNorm, kRouting, kPermuted, kFc1, kShared})
    result.decide(slot, SlotDecision::kKeep);
  result.decide(SavedSlot::kProduct, SlotDecision::kRecompute);
  return result;
}

LayerSlots LayerSlots::all_dropped() {
  LayerSlots result;
  result.own_.fill(SlotDecision::kRecompute);
  return result;
}

}  // namespace ms::layout
