// What becomes of the tensors that layers save for their backward, as a plan lists it: the tables of slot_policy.h of
// all stages, layers and micro-batches of the same kind put together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/training_step.h"

namespace ms::layout {

struct SavedTensorsRow {
  std::vector<LayerRange> layers;  // global, ascending
  int64_t microbatches = 0;        // of a step's, for which it holds
  // In the order of SavedSlot, of those that the model has. swap: those of at least SwapPlan::min_bytes; smaller ones
  // stay, and are listed there.
  std::vector<SavedSlot> keep, recompute, swap;
};
// By the first layer. A layer is in several rows if its micro-batches differ.
std::vector<SavedTensorsRow> saved_tensors(const TrainingStep& step);

// What rings keep of the keys and values that they receive, beside k and v (KvCache).
struct CachedBlocks {
  std::vector<LayerRange> layers;  // global, ascending
  int64_t blocks = 0;              // received ones
  int64_t bytes = 0;               // of all of them, of a layer and micro-batch
};
// Of rings of all ranks, and of those behind an exchange of heads; empty: no layer keeps any.
std::vector<CachedBlocks> cached_blocks(const TrainingStep& step);

}  // namespace ms::layout
