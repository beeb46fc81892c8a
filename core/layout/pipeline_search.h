// How many layers each stage of a pipeline gets, and how many of them it recomputes, so that a step is fastest within
// the memory of a rank (--automated-pipeline). Pure: times of the parts of the model and a budget in, layers out.
//
// A step takes the makespan of its schedule (schedule_timer.h) with the times of each stage's parts, messages taking
// none, and the update of the stage with the most parameters. The memory of a stage is formulas/memory.h. Of a stage's
// layers the first ones are recomputed, as few as the budget allows: recomputing more only takes longer.
//
// The search begins with the stages whose slowest is fastest (dynamic programming over the layers), moves single layers
// between stages while that helps, and then tries all other splits, of which bounds leave few. Models and pipelines
// where too many are left keep the best until then: SearchResult::is_exact.
// Source: MindSpeed's automated pipeline (mindspeed/core/memory/auto_pipeline/autopipeline_solver.py), which tries
// splits near the even one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/layout/recompute_plan.h"
#include "core/layout/training_step.h"

namespace ms::layout {

// Seconds of one micro-batch on a rank.
struct PartTimes {
  double forward = 0, backward = 0;
};
struct LayerTimes : PartTimes {
  // What the backward takes longer if the layer, or its MLP, is recomputed.
  double recompute_layer = 0, recompute_mlp = 0;
};
struct ModelTimes {
  PartTimes embedding, loss;  // loss: with final norm and output layer
  std::vector<LayerTimes> layers;
  double update_per_element = 0;  // seconds of a step's reduction and update, per element of a rank's gradient buffer
  double spread = 0;              // share by which measuring again may change a sum of them
};

struct PipelineSplit {
  std::vector<int64_t> num_layer_list;         // of each stage
  std::vector<int64_t> recompute_module_list;  // of each stage: its first layers that are recomputed
  RecomputedModule module = RecomputedModule::kLayer;
  double seconds = 0;      // of a step
  int64_t peak_bytes = 0;  // of the rank with the most

  bool recomputes() const;
};

struct SearchResult {
  PipelineSplit split;
  bool fits = true;       // false: no split needs so little memory; this one needs the least, within a thousandth
  bool is_exact = true;   // no split that fits is faster; false: the search has ended at a bound of its work
  int64_t simulated = 0;  // splits whose makespan was computed
  // Faster than `split`, by less than the times' spread: not taken, so that runs with the same times do the same.
  std::optional<PipelineSplit> passed_over;
};

// The schedule's settings must be those of 1F1B with one chunk a stage. Its work has bounds, in simulated actions and
// replayed layers; where one is reached, layers are recomputed that need not be, or splits left out.
// memory_budget_bytes: of a rank, for all that step_memory counts. step.layout.num_layer_list is not read; what
// step.recompute says holds for the layers that the search does not recompute. Deterministic: the same input gives the
// same split. Cost: seconds for 128 layers on 16 stages, most of them for the memory of stages; tens of seconds at
// most.
SearchResult find_pipeline_split(const TrainingStep& step, const ModelTimes& times, int64_t memory_budget_bytes);

// The same, but even stages, with as little recomputation as the budget allows, unless others are faster by more than
// times.spread, or even ones do not fit.
SearchResult find_pipeline_split_beyond_spread(const TrainingStep& step, const ModelTimes& times,
                                               int64_t memory_budget_bytes);

// The same where the micro-batch size may be chosen: a step, its times and its budget for each size. Of sizes with a
// split that fits the one whose step is fastest; if there is none, of all. At least one size. The given one is kept
// unless another is faster by more than the spread of both.
struct SizedSearchResult {
  size_t size = 0;  // index of the chosen one
  SearchResult result;
  std::optional<size_t> passed_over;  // a faster size, by less than the spread
};
SizedSearchResult find_micro_batch_size(std::span<const TrainingStep> steps, std::span<const ModelTimes> times,
                                        std::span<const int64_t> memory_budgets_bytes,
                                        std::optional<size_t> given = {});

// What the search expects of a split. list: layers of each stage; recomputed: as PipelineSplit has it, or empty for
// none.
PipelineSplit expected_of_split(const TrainingStep& step, const ModelTimes& times, std::vector<int64_t> list,
                                std::vector<int64_t> recomputed = {},
                                RecomputedModule module = RecomputedModule::kLayer);

}  // namespace ms::layout
