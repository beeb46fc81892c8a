#include "convert/megatron/optimizer_order.h"

#include <algorithm>
#include <array>
#include <string>

#include "ckpt/optimizer_settings.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

bool is_no_decay(const layout::ParameterSpec& spec) {
  return spec.global_shape.size() == 1 || spec.key.ends_with(".bias");
}
bool is_in(const MegatronModel& model, const layout::ParameterSpec& spec, OptimizerPart part) {
  if (spec.is_buffer) return false;
  if (part == OptimizerPart::kAll || !has_expert_optimizer(model)) return true;
  return (spec.expert >= 0) == (part == OptimizerPart::kExperts);
}

}  // namespace

bool is_decayed(const layout::ParameterSpec& spec, const GroupRule& rule) {
  return !is_no_decay(spec) || (rule.qk_norms_decay && ckpt::is_qk_norm(spec.key));
}

bool is_embedding_or_output(const layout::ParameterSpec& spec) { return ckpt::is_embedding_or_output(spec.key); }

bool has_expert_optimizer(const MegatronModel& model) { return model.config.has_experts() && model.experts.ep > 1; }

std::vector<MegatronParameters> optimizer_groups(const MegatronModel& model, std::span<const MegatronChunk> chunks,
                                                 const GroupRule& rule, OptimizerPart part) {
  std::array<MegatronParameters, 4> groups;
  for (const MegatronChunk& chunk : chunks) {
    for (const MegatronParameter& parameter : chunk) {
      const layout::ParameterSpec& spec = model.specs[parameter.spec];
      if (parameter.in_tensor == 0 || !is_in(model, spec, part)) continue;
      groups[(is_decayed(spec, rule) ? 0 : 1) + (rule.decoupled_lr && is_embedding_or_output(spec) ? 2 : 0)].push_back(
          &parameter);
    }
  }
  std::vector<MegatronParameters> found;
  for (MegatronParameters& group : groups) {
    if (!group.empty()) found.push_back(std::move(group));
  }
  return found;
}

std::vector<MegatronParameters> optimizer_buffers(const MegatronModel& model, const MegatronChunk& chunk,
                                                  OptimizerPart part) {
  std::vector<MegatronParameters> buffers;
  for (const MegatronParameter& parameter : chunk) {
    if (parameter.in_tensor == 0 || !is_in(model, model.specs[parameter.spec], part)) continue;
    const auto of_type = std::find_if(buffers.begin(), buffers.end(), [&](const MegatronParameters& buffer) {
      return buffer[0]->tensor.dtype == parameter.tensor.dtype;
    });
    if (of_type == buffers.end()) {
      buffers.push_back({&parameter});
    } else {
      of_type->push_back(&parameter);
    }
  }
  return buffers;
}

std::vector<FlatParameter> flat_parameters(const MegatronModel& model, const MegatronParameters& parameters) {
  const bool shared = model.layout.pipeline_model_parallel_size > 1;
  std::vector<FlatParameter> flat;
  for (const MegatronParameter* parameter : parameters) {
    const bool is_embedding = parameter->is_tied_copy || model.specs[parameter->spec].is_tied_embedding;
    int64_t elements = 1;
    for (const uint64_t length : stored_shape(*parameter)) elements *= static_cast<int64_t>(length);
    flat.push_back({elements, shared && is_embedding});
  }
  return flat;
}

}  // namespace ms::convert
