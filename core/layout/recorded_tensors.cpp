#include "core/layout/recorded_tensors.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/error.h"
#include "core/layout/parameter_specs.h"

namespace ms::layout {

std::vector<std::string> recorded_tensors(const core::TransformerConfig& model) {
  std::vector<std::string> modules = {"embedding"};
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string prefix = core::cat("decoder.layers.", layer);
    std::vector<const char*> parts = {".self_attention.linear_qkv"};
    if (model.multi_latent_attention) {
      parts = {model.q_lora_rank > 0 ? ".self_attention.linear_q_up_proj" : ".self_attention.linear_q_proj",
               ".self_attention.linear_kv_up_proj"};
    }
    parts.insert(parts.end(), {".self_attention.core_attention", ".self_attn_bda", ".mlp.linear_fc1", ""});
    for (const char* part : parts) {
      const bool is_mlp = std::string_view(part) == ".mlp.linear_fc1";
      if (!is_mlp || !model.layer_has_experts(layer)) modules.push_back(prefix + part);
    }
  }
  std::vector<std::string> tensors;
  for (const std::string& module : modules) tensors.push_back(module + ":output");
  tensors.emplace_back("output_layer:output");
  tensors.emplace_back("output_layer:grad");
  std::ranges::reverse(modules);
  for (const std::string& module : modules) tensors.push_back(module + ":grad");
  const std::vector<ParameterSpec> specs = parameter_specs(model);
  std::transform(specs.rbegin(), specs.rend(), std::back_inserter(tensors),
                 [](const ParameterSpec& spec) { return spec.key + ":grad"; });
  return tensors;
}

}  // namespace ms::layout
