#include "core/layout/unit_uses.h"

#include <utility>
#include <vector>

#include "core/layout/slot_policy.h"
#include "core/layout/swap_plan.h"

namespace ms::layout {
namespace {

class Counting {
 public:
  Counting(const TrainingStep& step, int stage)
      : step_(step),
        stage_(stage),
        placement_(placement_of(step.model, step.layout)),
        reads_words_(!step.model.untie_embeddings_and_output_weights || step.model.mtp_num_layers > 0),
        adds_words_apart_(reads_words_ && stage_of_loss(step.layout) == 0),
        has_linear_gradients_(static_cast<size_t>(step.model.num_layers)) {
    for (const ParameterSpec& spec : parameter_specs(step.model)) {
      const bool is_linear = spec.key.find(".linear_") != std::string::npos &&
                             (spec.key.ends_with(".weight") || spec.key.ends_with(".bias"));
      const bool is_of_layer = spec.layer >= 0 && spec.layer < step.model.num_layers;
      if (is_linear && is_of_layer && !is_frozen(step, spec.key))
        has_linear_gradients_[static_cast<size_t>(spec.layer)] = true;
    }
  }

  std::map<int64_t, UnitUses> count() {
    const StageParameters parameters = stage_parameters(step_, stage_);
    for (const BufferCut::Unit& unit : parameters.cut.units()) uses_[unit.id];
    const std::vector<ScheduleAction> actions =
        schedule_training(step_.schedule, stage_, placement_.stages(), placement_.chunks(), step_.num_microbatches);
    const SlotPolicy policy(step_, stage_, actions);
    for (const ScheduleAction& action : actions) {
      if (action.kind == ScheduleAction::kForward) count_forward(action);
      if (begins_backward(action)) {
        count_backward(action);
        if (step_.schedule.recompute == RecomputeTime::kAtBackward) count_groups_run_again(action, policy.of(action));
      }
      if (action.kind == ScheduleAction::kBackwardWeight) count_weights(action);
      if (action.kind == ScheduleAction::kRecompute) count_recomputed(action, policy.of(action));
    }
    const bool has_output = stage_of_loss(step_.layout) == stage_;
    if (has_output && step_.deferred_output_gradients > 0 && !output_is_frozen(step_)) reduce(output_unit());
    if (stage_ == 0 && adds_words_apart_) reduce(kWordsUnit);  // what was added up apart
    return std::move(uses_);
  }

 private:
  Place place(const ScheduleAction& action) const { return {stage_, action.chunk}; }
  int64_t output_unit() const { return reads_words_ ? kWordsUnit : step_.model.num_layers; }
  void reduce(int64_t unit) {
    if (const auto found = uses_.find(unit); found != uses_.end()) ++found->second.reductions;
  }

  void gather(int64_t unit) {
    if (const auto found = uses_.find(unit); found != uses_.end()) ++found->second.gathers;
  }
  void gather_output() {
    gather(step_.model.num_layers);
    if (reads_words_) gather(kWordsUnit);
  }

  void count_forward(const ScheduleAction& action) {
    const LayerRange layers = placement_.layers(place(action));
    if (placement_.is_first(place(action))) {
      gather(kWordsUnit);
      gather(kPositionsUnit);
    }
    for (int64_t layer = layers.first; layer < layers.first + layers.count; ++layer) gather(layer);
    if (placement_.is_last(place(action))) gather_output();
  }
  void count_backward(const ScheduleAction& action) {
    const LayerRange layers = placement_.layers(place(action));
    for (int64_t layer = layers.first; layer < layers.first + layers.count; ++layer) gather(layer);
    if (placement_.is_last(place(action))) {
      gather_output();
      reduce(step_.model.num_layers);
      const bool deferred = action.microbatch >= step_.num_microbatches - step_.deferred_output_gradients;
      if (reads_words_ && !deferred) reduce(kWordsUnit);
    }
    for (int64_t layer = layers.first; layer < layers.first + layers.count; ++layer) reduce(layer);
    if (!placement_.is_first(place(action))) return;
    if (!adds_words_apart_) reduce(kWordsUnit);
    reduce(kPositionsUnit);
  }
  // The backward of a group's last layer runs those before it again, itself with the backward.
  void count_groups_run_again(const ScheduleAction& action, const SlotTable& table) {
    const int64_t first = placement_.layers(place(action)).first;
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      if (!table[layer].runs_again() || !table.ends_group(layer)) continue;
      for (int64_t again = table.group_begin(layer); again < layer; ++again) gather(first + again);
    }
  }
  // Each layer has kept its input.
  void count_recomputed(const ScheduleAction& action, const SlotTable& table) {
    const int64_t first = placement_.layers(place(action)).first;
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      if (table[layer].runs_again()) gather(first + layer);
    }
  }
  void count_weights(const ScheduleAction& action) {
    const LayerRange layers = placement_.layers(place(action));
    for (int64_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
      if (has_linear_gradients_[static_cast<size_t>(layer)]) reduce(layer);
    }
  }

  const TrainingStep& step_;
  int stage_;
  Placement placement_;
  bool reads_words_, adds_words_apart_;     // by what is behind the layers
  std::vector<bool> has_linear_gradients_;  // of each layer, those that a split backward computes in its second part
  std::map<int64_t, UnitUses> uses_;
};

}  // namespace

std::map<int64_t, UnitUses> unit_uses(const TrainingStep& step, int stage) { return Counting(step, stage).count(); }

std::vector<UnitUses> uses_of_buckets(const TrainingStep& step, const StageParameters& parameters, int stage) {
  std::vector<UnitUses> of_buckets(parameters.buckets.size(), {.reductions = 1, .gathers = 1});
  const Sharding& sharding = parameters.cut.sharding();
  if (!sharding.gradients()) return of_buckets;
  const std::map<int64_t, UnitUses> uses = unit_uses(step, stage);
  const std::vector<BufferCut::Unit>& units = parameters.cut.units();
  for (size_t i = 0; i < units.size(); ++i) {
    if (parameters.cut.num_owners(units[i]) == 1) continue;  // at once, behind the last backward
    UnitUses& of_bucket = of_buckets[of_buckets.size() - 1 - i];
    of_bucket = uses.at(units[i].id);
    if (!sharding.weights()) of_bucket.gathers = 1;
  }
  return of_buckets;
}

}  // namespace ms::layout
