#include "core/layout/training_step.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/layout/sharding.h"
#include "core/layout/tensor_cut.h"

namespace ms::layout {

bool grad_is_partial(const ParameterSpec& spec, int tp_size, bool sequence_parallel) {
  const auto contains = [&](const char* part) { return spec.key.find(part) != std::string::npos; };
  const bool of_heads = contains(".q_layernorm.") || contains(".k_layernorm.");
  return spec.rule == TpRule::kReplicated && tp_size > 1 && (sequence_parallel || of_heads);
}

bool is_frozen(const TrainingStep& step, const std::string& key) {
  return std::ranges::binary_search(step.frozen_parameters, key);
}

bool is_frozen(const TrainingStep& step, int64_t layer, const char* linear) {
  return is_frozen(step, core::cat("decoder.layers.", layer, ".", linear, ".weight"));
}

bool output_is_frozen(const TrainingStep& step) {
  return is_frozen(step, step.model.untie_embeddings_and_output_weights ? "output_layer.weight"
                                                                        : "embedding.word_embeddings.weight");
}

StageParameters stage_parameters(const TrainingStep& step, int stage) {
  const int tp = step.layout.tensor_model_parallel_size, dp = step.layout.data_parallel_size;
  StageParameters result;
  result.cut = BufferCut(step.layout.sharding());
  int64_t frozen = 0, elements = 0;
  std::vector<int64_t> starts;
  std::vector<FlatRange> partial;
  bool embedding_trains = false;
  for (const ParameterSpec& spec : parameter_specs(step.model)) {
    if (!stage_holds(spec, step.model, step.layout, stage)) continue;
    const int64_t numel = core::num_elements(local_shape(spec, step.model, tp));
    const bool trains = !is_frozen(step, spec.key);
    if (spec.rule == TpRule::kVocabRows && spec.layer < 0) result.embedding_elems = numel, embedding_trains = trains;
    if (!trains) {
      frozen += aligned_size(numel);
      continue;
    }
    const int64_t start = result.cut.add(unit_of(spec), numel);
    starts.push_back(start);
    if (grad_is_partial(spec, tp, step.sequence_parallel)) partial.push_back({start, start + numel});
    elements += numel;
  }
  const bool tied = !step.model.untie_embeddings_and_output_weights;
  if (tied && embedding_trains && stage == 0 && stage_of_loss(step.layout) == 0) {
    const int64_t rows = result.embedding_elems / step.model.hidden_size;
    result.tied_row_elems = std::min(rows, step.num_microbatches * step.tokens()) * step.model.hidden_size;
  }
  if (!embedding_trains) result.embedding_elems = 0;
  result.cut.finish();
  result.buffer_elems = result.cut.size();
  result.frozen_elems = buffer_size(frozen, dp);
  result.buckets = gradient_buckets(result.cut, starts, bucket_elems(step.buckets, dp, elements));
  for (const FlatRange& bucket : result.buckets) {
    int64_t sum = 0;
    for (const FlatRange& one : partial)
      sum += one.begin >= bucket.begin && one.end <= bucket.end ? one.end - one.begin : 0;
    result.partial_grad_elems.push_back(sum);
  }
  return result;
}

int64_t shared_embedding_elems(const StageParameters& stage) {
  const Sharding& sharding = stage.cut.sharding();
  if (!sharding.gradients()) return stage.embedding_elems;
  return buffer_size(aligned_size(stage.embedding_elems), sharding.data_parallel_size) / sharding.data_parallel_size;
}

}  // namespace ms::layout
