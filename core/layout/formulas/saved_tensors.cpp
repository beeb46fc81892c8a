#include "core/layout/formulas/saved_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "core/layout/formulas/layer_replay.h"
#include "core/layout/slot_policy.h"

namespace ms::layout {
namespace {

using Decisions = std::array<SlotDecision, kNumSavedSlots>;

Decisions decisions_of(const LayerSlots& slots, const LayerBytes& bytes, const SwapPlan& swap) {
  Decisions decisions{};
  for (const SavedSlotProperties& of : kSavedSlots) {
    const bool stays = slots[of.slot] == SlotDecision::kSwap && bytes.of(of.slot, slots) < swap.min_bytes;
    decisions[slot_index(of.slot)] = stays ? SlotDecision::kKeep : slots[of.slot];
  }
  return decisions;
}

std::vector<LayerRange> ranges_of(std::vector<int64_t> layers) {
  std::ranges::sort(layers);
  std::vector<LayerRange> ranges;
  for (const int64_t layer : layers) {
    if (ranges.empty() || ranges.back().first + ranges.back().count != layer) ranges.push_back({layer, 0});
    ++ranges.back().count;
  }
  return ranges;
}

SavedTensorsRow row_of(const Decisions& decisions, int64_t microbatches, std::vector<int64_t> layers,
                       const LayerBytes& bytes) {
  SavedTensorsRow row{.layers = ranges_of(std::move(layers)), .microbatches = microbatches};
  for (const SavedSlotProperties& of : kSavedSlots) {
    if (bytes.of(of.slot, {}) == 0) continue;
    const SlotDecision decision = decisions[slot_index(of.slot)];
    (decision == SlotDecision::kKeep        ? row.keep
     : decision == SlotDecision::kRecompute ? row.recompute
                                            : row.swap)
        .push_back(of.slot);
  }
  return row;
}

}  // namespace

std::vector<SavedTensorsRow> saved_tensors(const TrainingStep& step) {
  const Placement placement = placement_of(step.model, step.layout);
  const std::array<LayerBytes, 2> bytes = {LayerBytes(step), LayerBytes(step, /*experts=*/true)};
  const std::vector<bool> with_experts = step.model.layers_with_experts();
  // Tables of a chunk may differ in layers that others of its layers do not: their micro-batches are added up.
  std::map<std::pair<int64_t, Decisions>, int64_t> microbatches_of_layers;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const SlotPolicy policy(step, stage);
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const int64_t first = placement.layers({stage, chunk}).first;
      for (const auto& [table, microbatches] : policy.shares(chunk)) {
        for (int64_t layer = 0; layer < table.layers(); ++layer)
          microbatches_of_layers[{first + layer, decisions_of(table[layer], bytes[0], step.swap)}] += microbatches;
      }
    }
  }
  std::map<std::tuple<Decisions, int64_t, bool>, std::vector<int64_t>> layers_of_rows;
  for (const auto& [key, microbatches] : microbatches_of_layers) {
    const auto& [layer, decisions] = key;
    layers_of_rows[{decisions, microbatches, with_experts[static_cast<size_t>(layer)]}].push_back(layer);
  }
  std::vector<SavedTensorsRow> rows;
  for (const auto& [key, layers] : layers_of_rows) {
    const auto& [decisions, microbatches, experts] = key;
    rows.push_back(row_of(decisions, microbatches, layers, bytes[experts ? 1 : 0]));
  }
  std::ranges::stable_sort(rows, {}, [](const SavedTensorsRow& row) { return row.layers.front().first; });
  return rows;
}

CachedBlocks cached_blocks(const TrainingStep& step) {
  CachedBlocks cached;
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < step.model.num_layers; ++layer)
    if (step.kv_cache_of(layer) != KvCachePolicy::kNone) layers.push_back(layer);
  if (layers.empty()) return cached;
  const LayerBytes bytes(step);
  LayerSlots caching;
  caching.cache_blocks(step.kv_cache.policy);
  cached.layers = ranges_of(std::move(layers));
  cached.blocks = bytes.cached_blocks(SavedSlot::kK, step.kv_cache.policy) - 1;
  for (const SavedSlot slot : {SavedSlot::kK, SavedSlot::kV})
    cached.bytes += bytes.of(slot, caching) - bytes.of(slot, {});
  return cached;
}

}  // namespace ms::layout
