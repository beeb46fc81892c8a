#include "core/layout/formulas/saved_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/layout/formulas/layer_replay.h"
#include "core/layout/slot_policy.h"

namespace ms::layout {
namespace {

using Decisions = std::array<SlotDecision, kNumSavedSlots>;

Decisions decisions_of(const LayerSlots& slots, const LayerBytes& bytes, const SwapPlan& swap) {
  Decisions decisions{};
  for (const SavedSlotProperties& of : kSavedSlots) {
    const bool stays = slots[of.slot] == SlotDecision::kSwap && bytes[of.slot] < swap.min_bytes;
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
    if (bytes[of.slot] == 0) continue;
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
  const LayerBytes bytes(step);
  // Tables of a chunk may differ in layers that others of its layers do not: their micro-batches are added up.
  std::map<std::pair<int64_t, Decisions>, int64_t> microbatches_of_layers;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const SlotPolicy policy(step, stage);
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const int64_t first = placement.layers({stage, chunk}).first;
      for (const auto& [table, microbatches] : policy.shares(chunk)) {
        for (int64_t layer = 0; layer < table.layers(); ++layer)
          microbatches_of_layers[{first + layer, decisions_of(table[layer], bytes, step.swap)}] += microbatches;
      }
    }
  }
  std::map<std::pair<Decisions, int64_t>, std::vector<int64_t>> layers_of_rows;
  for (const auto& [key, microbatches] : microbatches_of_layers)
    layers_of_rows[{key.second, microbatches}].push_back(key.first);
  std::vector<SavedTensorsRow> rows;
  for (const auto& [key, layers] : layers_of_rows) rows.push_back(row_of(key.first, key.second, layers, bytes));
  std::ranges::stable_sort(rows, {}, [](const SavedTensorsRow& row) { return row.layers.front().first; });
  return rows;
}

}  // namespace ms::layout
