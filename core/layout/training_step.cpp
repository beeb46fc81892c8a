#include "core/layout/training_step.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/layout/adaptive_plan.h"
#include "core/layout/sharding.h"
#include "core/layout/tensor_cut.h"

namespace ms::layout {

std::shared_ptr<const AdaptivePlan> TrainingStep::adaptive_plan() const {
  if (mask.plan) return mask.plan;
  return plan_documents(seq_length, context_parts.ring, {}, PositionOrder::kOfSequence, mask.prefix);
}

KvCachePolicy TrainingStep::kv_cache_of(int64_t layer) const {
  const ContextAlgorithm algorithm = context_algorithm_of(layer);
  const bool has_ring = algorithm == ContextAlgorithm::kRing || algorithm == ContextAlgorithm::kHybrid;
  return has_ring ? kv_cache.of_layer(std::min(layer, model.num_layers - 1)) : KvCachePolicy::kNone;
}

bool grad_is_partial(const ParameterSpec& spec, int tp_size, bool sequence_parallel) {
  const auto contains = [&](const char* part) { return spec.key.find(part) != std::string::npos; };
  const bool of_heads = contains(".q_layernorm.") || contains(".k_layernorm.");
  return spec.rule == TpRule::kReplicated && tp_size > 1 && (sequence_parallel || of_heads);
}

bool is_frozen(const TrainingStep& step, const std::string& key) {
  return std::ranges::binary_search(step.frozen_parameters, key);
}

bool is_frozen(const TrainingStep& step, int64_t layer, const char* linear) {
  return is_frozen(step, core::cat(layer_name(step.model, layer), ".", linear, ".weight"));
}

bool output_is_frozen(const TrainingStep& step) {
  return is_frozen(step, step.model.untie_embeddings_and_output_weights ? "output_layer.weight"
                                                                        : "embedding.word_embeddings.weight");
}

StageParameters stage_parameters(const TrainingStep& step, int stage) {
  const int tp = step.layout.tensor_model_parallel_size;
  const RankGrid grid = step.layout.grid();
  const int first_rank = grid.rank({.pp = stage});  // its ranks hold as much, if not the same experts
  StageParameters result;
  result.cut = BufferCut(step.layout.sharding(), grid);
  BufferCut frozen({.data_parallel_size = step.layout.data_parallel_size}, grid);
  std::vector<std::pair<BufferCut::Place, int64_t>> partial;
  bool embedding_trains = false, has_copy_behind = false;
  for (const ParameterSpec& spec : parameter_specs(step.model)) {
    if (!rank_holds(spec, step.model, step.layout, first_rank)) continue;
    const int64_t numel = core::num_elements(local_shape(spec, step.model, cut_of(spec, grid, first_rank).size));
    if (spec.is_buffer) {
      result.model_buffer_elems += numel;
      continue;
    }
    const bool trains = !is_frozen(step, spec.key);
    if (spec.rule == TpRule::kVocabRows && spec.layer < 0) {
      result.embedding_elems = numel;
      embedding_trains = trains, has_copy_behind = spec.has_copy_behind;
    }
    const BufferCut::Place place = (trains ? result.cut : frozen).add(spec, numel);
    if (trains && grad_is_partial(spec, tp, step.sequence_parallel)) partial.emplace_back(place, numel);
  }
  if (has_copy_behind && embedding_trains && stage == 0 && stage_of_loss(step.layout) == 0) {
    const int64_t rows = result.embedding_elems / step.model.hidden_size;
    // How many tokens of a step are on a rank whose samples have as many ranks as they need depends on their lengths.
    const int64_t most = step.max_seqlen_per_dp_cp_rank > 0 ? rows : step.num_microbatches * step.tokens();
    result.tied_row_elems = std::min(rows, most) * step.model.hidden_size;
  }
  if (!embedding_trains) result.embedding_elems = 0;
  result.cut.finish();
  frozen.finish();
  result.buffer_elems = result.cut.size();
  result.frozen_elems = frozen.size();
  result.buckets = gradient_buckets(result.cut, step.buckets);
  for (const FlatRange& bucket : result.buckets) {
    int64_t sum = 0;
    for (const auto& [place, numel] : partial) {
      const int64_t begin = result.cut.begin_of(place);
      sum += begin >= bucket.begin && begin + numel <= bucket.end ? numel : 0;
    }
    result.partial_grad_elems.push_back(sum);
  }
  return result;
}

int64_t shared_embedding_elems(const StageParameters& stage) {
  const Sharding& sharding = stage.cut.sharding();
  if (!sharding.gradients() || stage.embedding_elems < sharding.least_divided_elems) return stage.embedding_elems;
  return buffer_size(aligned_size(stage.embedding_elems), sharding.data_parallel_size) / sharding.owners();
}

}  // namespace ms::layout
