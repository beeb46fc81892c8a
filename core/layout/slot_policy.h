// What becomes of every tensor that the layers of a stage save (saved_slots.h): a table of (layer, slot) for each chunk
// and micro-batch, from what recomputation and swap are set to and from the stage's schedule. The executor hands a
// table on with each forward; the formulas read the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layout/training_step.h"

namespace ms::layout {

// Of one layer of a chunk whose micro-batch keeps its activations. recompute: of its place. layer: within the chunk.
// What is said of MLPs does not concern a layer with experts, as in Megatron.
LayerSlots layer_slots(const RecomputePlan& recompute, const SwapPlan& swap, int64_t layer, bool has_experts = false);

// The layers of a chunk, for one micro-batch.
class SlotTable {
 public:
  // What the table of a micro-batch depends on besides its chunk.
  struct Visit {
    bool drops = true;          // what is recomputed whole is dropped; false: the schedule keeps it
    bool turns_around = false;  // the backward follows at once, so that the last layer's tensors stay
  };
  SlotTable() = default;
  // with_experts: of each layer; empty: of none.
  SlotTable(const RecomputePlan& recompute, const SwapPlan& swap, int64_t layers, Visit visit,
            const std::vector<bool>& with_experts = {});

  // What rings cache. first: the global index of its first layer.
  void cache_blocks(const TrainingStep& step, int64_t first);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerSlots& operator[](int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  // Of a layer that runs again: the first of those that run with it, one after the other up to `layer`, from the input
  // that this one has kept.
  int64_t group_begin(int64_t layer) const;
  // Whether no layer behind it runs again with it.
  bool ends_group(int64_t layer) const;

 private:
  std::vector<LayerSlots> layers_;
};

// Of the layers of multi-token prediction, which run within the last chunk: what its last layer has. They stay in
// memory where that one is swapped, and keep their input where it runs again.
LayerSlots mtp_slots(const SlotTable& of_last_chunk);

// All tables of a stage.
class SlotPolicy {
 public:
  // actions: of the stage, as schedule_training lists them.
  SlotPolicy(const TrainingStep& step, int stage, const std::vector<ScheduleAction>& actions);
  SlotPolicy(const TrainingStep& step, int stage);

  const SlotTable& of(int64_t microbatch, int chunk) const {
    return tables_[table_of_[static_cast<size_t>(microbatch * chunks_ + chunk)]];
  }
  const SlotTable& of(const ScheduleAction& action) const { return of(action.microbatch, action.chunk); }

  // Tables of a chunk, and how many micro-batches each is of; those of none are left out.
  struct Share {
    const SlotTable& table;
    int64_t microbatches;
  };
  std::vector<Share> shares(int chunk) const;

 private:
  static constexpr size_t kKindsOfVisit = 4;
  int chunks_;
  std::vector<SlotTable> tables_;   // of each chunk and kind of visit; empty: of none
  std::vector<uint32_t> table_of_;  // of each micro-batch and chunk
};

}  // namespace ms::layout
