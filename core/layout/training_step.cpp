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

int64_t owned_elems(const TrainingStep& step, const StageParameters& stage) {
  int64_t owned = 0;
  for (size_t number = 0; number < kNumTrainedSections; ++number) {
    const BufferSection& section = stage.sections[number];
    owned += (section.range.end - section.range.begin) / (step.layout.zero_stage > 0 ? section.num_replicas : 1);
  }
  return owned;
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
  const int tp = step.layout.tensor_model_parallel_size;
  const RankGrid grid = step.layout.grid();
  const int first_rank = grid.rank({.pp = stage});  // its ranks hold as much, if not the same experts
  StageParameters result;
  BufferSections sections(grid);
  std::array<int64_t, kNumSections> elements{};
  std::array<std::vector<int64_t>, kNumSections> starts;
  std::vector<FlatRange> partial;  // within the first section
  bool embedding_trains = false;
  for (const ParameterSpec& spec : parameter_specs(step.model)) {
    if (!rank_holds(spec, step.model, step.layout, first_rank)) continue;
    const int64_t numel = core::num_elements(local_shape(spec, step.model, cut_of(spec, grid, first_rank).size));
    if (spec.is_buffer) {
      result.model_buffer_elems += numel;
      continue;
    }
    const bool trains = !is_frozen(step, spec.key);
    if (spec.rule == TpRule::kVocabRows && spec.layer < 0) result.embedding_elems = numel, embedding_trains = trains;
    const auto [section, offset] = sections.add(spec, numel, trains);
    starts[section].push_back(offset);
    elements[section] += numel;
    if (trains && grad_is_partial(spec, tp, step.sequence_parallel)) partial.push_back({offset, offset + numel});
  }
  const bool tied = !step.model.untie_embeddings_and_output_weights;
  if (tied && embedding_trains && stage == 0 && stage_of_loss(step.layout) == 0) {
    const int64_t rows = result.embedding_elems / step.model.hidden_size;
    result.tied_row_elems = std::min(rows, step.num_microbatches * step.tokens()) * step.model.hidden_size;
  }
  if (!embedding_trains) result.embedding_elems = 0;
  result.sections = sections.finish();
  result.buffer_elems = result.sections[kNumTrainedSections - 1].range.end;
  result.frozen_elems = result.sections.back().range.end - result.buffer_elems;
  for (size_t number = 0; number < kNumTrainedSections; ++number) {
    if (number > 0 && starts[number].empty()) continue;
    for (const FlatRange& bucket :
         buckets_of_section(step.buckets, result.sections[number], starts[number], elements[number])) {
      result.buckets.push_back(bucket);
      result.section_of_bucket.push_back(number);
    }
  }
  for (const FlatRange& bucket : result.buckets) {
    int64_t sum = 0;
    for (const FlatRange& one : partial)
      sum += one.begin >= bucket.begin && one.end <= bucket.end ? one.end - one.begin : 0;
    result.partial_grad_elems.push_back(sum);
  }
  return result;
}

}  // namespace ms::layout
