#include "core/layout/slot_policy.h"

#include <algorithm>

namespace ms::layout {
namespace {

std::vector<ScheduleAction> actions_of(const TrainingStep& step, int stage) {
  const ModelLayout& layout = step.layout;
  return schedule_training(step.schedule, stage, layout.pipeline_model_parallel_size,
                           layout.virtual_pipeline_model_parallel_size, step.num_microbatches);
}

}  // namespace

LayerSlots layer_slots(const RecomputePlan& recompute, const SwapPlan& swap, int64_t layer, bool has_experts) {
  LayerSlots slots;
  for (const SavedSlotProperties& of : kSavedSlots) {
    if (swap.moves(of.slot)) slots.decide(of.slot, SlotDecision::kSwap);
  }
  const RecomputedParts parts = recompute.recomputed_parts(layer);
  slots.recompute(parts & ~(has_experts ? kRecomputedMlp : kRecomputedOfExperts));
  return slots;
}

SlotTable::SlotTable(const RecomputePlan& recompute, const SwapPlan& swap, int64_t layers, Visit visit,
                     const std::vector<bool>& with_experts) {
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool stays = visit.turns_around && layer + 1 == layers;
    const bool has_experts = !with_experts.empty() && with_experts[static_cast<size_t>(layer)];
    LayerSlots& slots = layers_.emplace_back(layer_slots(recompute, stays ? SwapPlan() : swap, layer, has_experts));
    if (visit.drops && recompute.recomputes(layer)) slots.run_again(recompute.group_begin(layer) == layer);
  }
}

void SlotTable::cache_blocks(const TrainingStep& step, int64_t first) {
  for (LayerSlots& slots : layers_) slots.cache_blocks(step.kv_cache_of(first++));
}

int64_t SlotTable::group_begin(int64_t layer) const {
  while ((*this)[layer][SavedSlot::kInput] != SlotDecision::kKeep) --layer;
  return layer;
}

bool SlotTable::ends_group(int64_t layer) const {
  return layer + 1 == layers() || (*this)[layer + 1][SavedSlot::kInput] == SlotDecision::kKeep;
}

LayerSlots mtp_slots(const SlotTable& of_last_chunk) {
  if (of_last_chunk.layers() == 0) return {};
  LayerSlots slots = of_last_chunk[of_last_chunk.layers() - 1];
  if (slots.runs_again()) slots.run_again(/*keeps_input=*/true);
  for (const SavedSlotProperties& of : kSavedSlots) {
    if (slots[of.slot] == SlotDecision::kSwap) slots.decide(of.slot, SlotDecision::kKeep);
  }
  return slots;
}

SlotPolicy::SlotPolicy(const TrainingStep& step, int stage) : SlotPolicy(step, stage, actions_of(step, stage)) {}

SlotPolicy::SlotPolicy(const TrainingStep& step, int stage, const std::vector<ScheduleAction>& actions)
    : chunks_(step.layout.virtual_pipeline_model_parallel_size) {
  const Placement placement = placement_of(step.model, step.layout);
  const std::vector<bool> dropped = dropped_chunks(step.schedule, actions, chunks_, step.num_microbatches);
  const std::vector<bool> turns = turn_around(actions, chunks_, step.num_microbatches);
  const std::vector<bool> experts = step.model.layers_with_experts();
  tables_.resize(static_cast<size_t>(chunks_) * kKindsOfVisit);
  for (size_t visit = 0; visit < dropped.size(); ++visit) {
    const int chunk = static_cast<int>(visit % static_cast<size_t>(chunks_));
    const size_t kind = (dropped[visit] ? 2u : 0u) + (turns[visit] ? 1u : 0u);
    const size_t table = static_cast<size_t>(chunk) * kKindsOfVisit + kind;
    table_of_.push_back(static_cast<uint32_t>(table));
    const Place place{stage, chunk};
    const auto [first, layers] = placement.layers(place);
    if (tables_[table].layers() < layers) {
      const std::vector<bool> with_experts(experts.begin() + first, experts.begin() + first + layers);
      tables_[table] = SlotTable(step.recompute.of_place(place), step.swap, layers,
                                 {.drops = dropped[visit], .turns_around = turns[visit]}, with_experts);
      tables_[table].cache_blocks(step, first);
    }
  }
}

std::vector<SlotPolicy::Share> SlotPolicy::shares(int chunk) const {
  std::vector<Share> result;
  for (size_t kind = 0; kind < kKindsOfVisit; ++kind) {
    const size_t table = static_cast<size_t>(chunk) * kKindsOfVisit + kind;
    const auto microbatches = std::ranges::count(table_of_, table);
    if (microbatches > 0) result.push_back({tables_[table], microbatches});
  }
  return result;
}

}  // namespace ms::layout
