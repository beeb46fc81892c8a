#include "core/layout/training_step.h"

#include <algorithm>
#include <string>

#include "core/layout/sharding.h"
#include "core/layout/tensor_cut.h"

namespace ms::layout {

bool grad_is_partial(const ParameterSpec& spec, int tp_size, bool sequence_parallel) {
  const auto contains = [&](const char* part) { return spec.key.find(part) != std::string::npos; };
  const bool of_heads = contains(".q_layernorm.") || contains(".k_layernorm.");
  return spec.rule == TpRule::kReplicated && tp_size > 1 && (sequence_parallel || of_heads);
}

int64_t num_recomputes(const TrainingStep& step, Place place) {
  if (step.schedule.recompute == RecomputeTime::kAtBackward) return step.num_microbatches;
  const ModelLayout& layout = step.layout;
  return std::ranges::count_if(
      schedule_training(step.schedule, place.stage, layout.pipeline_model_parallel_size,
                        layout.virtual_pipeline_model_parallel_size, step.num_microbatches),
      [&](const ScheduleAction& a) { return a.kind == ScheduleAction::kRecompute && a.chunk == place.chunk; });
}

StageParameters stage_parameters(const TrainingStep& step, int stage) {
  const int tp = step.layout.tensor_model_parallel_size;
  StageParameters result;
  int64_t aligned = 0;
  for (const ParameterSpec& spec : parameter_specs(step.model)) {
    if (!stage_holds(spec, step.model, step.layout, stage)) continue;
    const int64_t numel = core::num_elements(local_shape(spec, step.model, tp));
    aligned += aligned_size(numel);
    if (grad_is_partial(spec, tp, step.sequence_parallel)) result.partial_grad_elems += numel;
    if (spec.rule == TpRule::kVocabRows && spec.layer < 0) result.embedding_elems = numel;
  }
  const bool tied = !step.model.untie_embeddings_and_output_weights;
  if (tied && stage == 0 && stage_of_loss(step.layout) == 0) {
    const int64_t rows = result.embedding_elems / step.model.hidden_size;
    result.tied_row_elems = std::min(rows, step.num_microbatches * step.tokens()) * step.model.hidden_size;
  }
  result.buffer_elems = buffer_size(aligned, step.layout.data_parallel_size);
  return result;
}

}  // namespace ms::layout
