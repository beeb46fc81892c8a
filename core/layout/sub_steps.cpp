#include "core/layout/sub_steps.h"

namespace ms::layout {

std::string_view sub_step_name(SubStep step) {
  constexpr std::string_view kNames[] = {"attention", "dispatch", "experts", "combine", "mlp"};
  return kNames[static_cast<size_t>(step)];
}

bool communicates(SubStep step) { return step == SubStep::kDispatch || step == SubStep::kCombine; }

std::vector<SubStep> sub_steps(const core::TransformerConfig& model, int64_t layer) {
  const bool has_experts = model.has_experts() && model.layers_with_experts()[static_cast<size_t>(layer)];
  if (!has_experts) return {SubStep::kAttention, SubStep::kMlp};
  return {SubStep::kAttention, SubStep::kDispatch, SubStep::kExperts, SubStep::kCombine};
}

}  // namespace ms::layout
