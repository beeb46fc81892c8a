#include "core/layout/sub_steps.h"

namespace ms::layout {
namespace {

void add_block(std::vector<SubStep>& steps, SubStep block, SubStep reduce, int tp) {
  steps.push_back(block);
  if (tp > 1) steps.push_back(reduce);
}

}  // namespace

std::string_view sub_step_name(SubStep step) {
  constexpr std::string_view kNames[] = {"attention", "attention_reduce", "dispatch", "experts", "combine",
                                         "mlp",       "mlp_reduce",       "result"};
  return kNames[static_cast<size_t>(step)];
}

bool communicates(SubStep step) {
  return step == SubStep::kDispatch || step == SubStep::kCombine || step == SubStep::kAttentionReduce ||
         step == SubStep::kMlpReduce;
}

std::vector<SubStep> sub_steps(const core::TransformerConfig& model, int64_t layer, int tp, int ep) {
  std::vector<SubStep> steps;
  add_block(steps, SubStep::kAttention, SubStep::kAttentionReduce, tp);
  if (!model.layer_has_experts(layer)) {
    add_block(steps, SubStep::kMlp, SubStep::kMlpReduce, tp);
  } else if (ep > 1) {
    steps.insert(steps.end(), {SubStep::kDispatch, SubStep::kExperts, SubStep::kCombine});
  } else {
    steps.push_back(SubStep::kExperts);
  }
  return steps;
}

std::vector<SubStep> backward_sub_steps(const core::TransformerConfig& model, int64_t layer, int tp, int ep) {
  std::vector<SubStep> steps;
  if (!model.layer_has_experts(layer)) {
    add_block(steps, SubStep::kMlp, SubStep::kMlpReduce, tp);
  } else if (ep > 1) {
    steps = {SubStep::kCombine, SubStep::kExperts, SubStep::kDispatch};
  } else {
    steps = {SubStep::kExperts};
  }
  add_block(steps, SubStep::kAttention, SubStep::kAttentionReduce, tp);
  return steps;
}

std::vector<ChunkStep> chunk_steps(const core::TransformerConfig& model, LayerRange layers, int tp, int ep) {
  std::vector<ChunkStep> steps;
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    for (const SubStep step : sub_steps(model, layers.first + layer, tp, ep)) steps.push_back({step, layer});
  }
  steps.push_back({SubStep::kResult, layers.count});
  return steps;
}

std::vector<ChunkStep> backward_chunk_steps(const core::TransformerConfig& model, LayerRange layers, int tp, int ep) {
  std::vector<ChunkStep> steps;
  for (int64_t layer = layers.count; layer-- > 0;) {
    for (const SubStep step : backward_sub_steps(model, layers.first + layer, tp, ep)) steps.push_back({step, layer});
  }
  steps.push_back({SubStep::kResult, layers.count});
  return steps;
}

}  // namespace ms::layout
