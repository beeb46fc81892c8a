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
  const std::vector<bool> with_experts = step.model.layers_with_experts();
  // Of the layers of an algorithm, without experts and with them.
  std::map<ContextAlgorithm, std::array<LayerBytes, 2>> bytes;
  for (int64_t layer = 0; layer < step.model.num_layers; ++layer) {
    const ContextAlgorithm algorithm = step.context_algorithm_of(layer);
    if (bytes.contains(algorithm)) continue;
    bytes.emplace(algorithm, std::array{LayerBytes(step, algorithm), LayerBytes(step, algorithm, /*experts=*/true)});
  }
  const auto bytes_of = [&](int64_t layer, bool experts) -> const LayerBytes& {
    return bytes.at(step.context_algorithm_of(layer))[experts ? 1 : 0];
  };
  // Tables of a chunk may differ in layers that others of its layers do not: their micro-batches are added up.
  std::map<std::pair<int64_t, Decisions>, int64_t> microbatches_of_layers;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const SlotPolicy policy(step, stage);
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const int64_t first = placement.layers({stage, chunk}).first;
      for (const auto& [table, microbatches] : policy.shares(chunk)) {
        for (int64_t layer = 0; layer < table.layers(); ++layer)
          microbatches_of_layers[{
              first + layer, decisions_of(table[layer], bytes_of(first + layer, false), step.swap)}] += microbatches;
      }
    }
  }
  // Layers of a row have the same tensors: with experts or without, with an exchange of heads or without.
  std::map<std::tuple<Decisions, int64_t, bool, bool>, std::vector<int64_t>> layers_of_rows;
  for (const auto& [key, microbatches] : microbatches_of_layers) {
    const auto& [layer, decisions] = key;
    const bool exchanges_heads = step.context_parts_of(step.context_algorithm_of(layer)).ulysses > 1;
    layers_of_rows[{decisions, microbatches, with_experts[static_cast<size_t>(layer)], exchanges_heads}].push_back(
        layer);
  }
  std::vector<SavedTensorsRow> rows;
  for (const auto& [key, layers] : layers_of_rows) {
    const auto& [decisions, microbatches, experts, exchanges_heads] = key;
    rows.push_back(row_of(decisions, microbatches, layers, bytes_of(layers.front(), experts)));
  }
  std::ranges::stable_sort(rows, {}, [](const SavedTensorsRow& row) { return row.layers.front().first; });
  return rows;
}

std::vector<CachedBlocks> cached_blocks(const TrainingStep& step) {
  std::map<ContextAlgorithm, std::vector<int64_t>> layers_of_rings;
  for (int64_t layer = 0; layer < step.model.num_layers; ++layer) {
    if (step.kv_cache_of(layer) != KvCachePolicy::kNone)
      layers_of_rings[step.context_algorithm_of(layer)].push_back(layer);
  }
  LayerSlots caching;
  caching.cache_blocks(step.kv_cache.policy);
  std::vector<CachedBlocks> of_rings;
  for (auto& [algorithm, layers] : layers_of_rings) {
    const LayerBytes bytes(step, algorithm);
    CachedBlocks& cached = of_rings.emplace_back();
    cached.layers = ranges_of(std::move(layers));
    cached.blocks = bytes.cached_blocks(SavedSlot::kK, step.kv_cache.policy) - 1;
    for (const SavedSlot slot : {SavedSlot::kK, SavedSlot::kV})
      cached.bytes += bytes.of(slot, caching) - bytes.of(slot, {});
  }
  return of_rings;
}

}  // namespace ms::layout
