#include "core/layout/saved_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace ms::layout {
namespace {

constexpr SlotDecision kKeep = SlotDecision::kKeep, kRecompute = SlotDecision::kRecompute, kSwap = SlotDecision::kSwap;

TEST(SavedSlots, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const SavedSlotProperties& of : kSavedSlots) {
    EXPECT_EQ(slot_name(of.slot), of.name);
    names.insert(of.name);
  }
  EXPECT_EQ(names.size(), kNumSavedSlots);
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(slot_index(SavedSlot::kMlpBranchStatistics) + 1, kNumSavedSlots) << "a row for the last slot, too";
}

TEST(LayerSlots, KeepAllAtFirst) {
  const LayerSlots slots;
  EXPECT_FALSE(slots.runs_again());
  for (const SavedSlotProperties& of : kSavedSlots) {
    EXPECT_EQ(slots[of.slot], kKeep) << of.name;
    EXPECT_FALSE(slots.module_drops(of.slot)) << of.name;
  }
}

TEST(LayerSlots, OfALayerThatRunsAgainKeepNothingButTheInput) {
  LayerSlots slots;
  slots.recompute(kRecomputedNorms);
  slots.decide(SavedSlot::kQ, kSwap);
  for (const bool keeps_input : {true, false}) {
    slots.run_again(keeps_input);
    EXPECT_TRUE(slots.runs_again());
    for (const SavedSlotProperties& of : kSavedSlots) {
      const bool stays = keeps_input && of.slot == SavedSlot::kInput;
      EXPECT_EQ(slots[of.slot], stays ? kKeep : kRecompute) << of.name;
      EXPECT_EQ(slots.module_drops(of.slot),
                of.slot == SavedSlot::kInputNorm || of.slot == SavedSlot::kPostAttentionNorm)
          << "while it runs, " << of.name;
    }
  }
}

// Until the backward the MLP has what its activation reads, whatever its parts are set to.
TEST(LayerSlots, OfARefilledLayerLeaveTheActivationToTheBackward) {
  using enum SavedSlot;
  for (int bits = 0; bits < 256; ++bits) {
    const auto parts = static_cast<RecomputedParts>(bits);
    LayerSlots slots;
    slots.recompute(parts);
    slots.run_again(true);
    const LayerSlots refilled = slots.refilled(/*post_norm=*/false), to_the_end = slots.refilled(/*post_norm=*/true);
    EXPECT_FALSE(refilled.runs_again());
    for (const SavedSlotProperties& of : kSavedSlots) {
      const bool drops = (of.recomputed_with & parts) != 0;
      EXPECT_EQ(to_the_end.module_drops(of.slot), drops) << of.name;
      const SavedSlot read[] = {kPostAttentionNorm, kRouting, kPermuted, kFc1, kShared};
      const bool is_read = std::ranges::count(read, of.slot) > 0;
      EXPECT_EQ(refilled.module_drops(of.slot), of.slot == kProduct || (drops && !is_read)) << of.name;
    }
  }
}

TEST(LayerSlots, OfAForwardAloneAreDropped) {
  const LayerSlots slots = LayerSlots::all_dropped();
  for (const SavedSlotProperties& of : kSavedSlots) EXPECT_TRUE(slots.module_drops(of.slot)) << of.name;
}

}  // namespace
}  // namespace ms::layout
