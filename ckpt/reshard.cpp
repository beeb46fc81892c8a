#include "ckpt/reshard.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/parameter_specs.h"
#include "kernels/checksum.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

namespace {

// "decoder.layers.3" of an expert's parameter: the key by which the experts of a layer are counted.
std::string layer_of(const std::string& key) { return key.substr(0, key.find(".mlp.experts.")); }

// Of a run with --freeze-parameters: these have no optimizer state.
bool some_are_frozen(const CheckpointInfo& info) {
  const auto expression = nlohmann::json::json_pointer("/config/optimizer/freeze_parameters");
  if (!info.common.is_object() || !info.common.contains(expression)) return false;
  const nlohmann::json& text = info.common.at(expression);
  return text.is_string() && text != "";
}

struct Parameters {
  std::vector<layout::ParameterSpec> specs;
  std::vector<std::array<int32_t, core::kNumTensorRoles>> tensors;  // tensors of the source, by role; -1: none

  void add(layout::ParameterSpec spec, const std::array<int32_t, core::kNumTensorRoles>& of_source) {
    specs.push_back(std::move(spec));
    tensors.push_back(of_source);
  }
};

Parameters joined(Parameters first, Parameters second) {
  for (size_t i = 0; i < second.specs.size(); ++i) first.add(std::move(second.specs[i]), second.tensors[i]);
  return first;
}

// The parameters of the checkpoint: those of its model, in model order, then others whose names determine how they are
// sharded.
Parameters parameters_of(const ShardTable& shards, const core::TransformerConfig& model) {
  Parameters parameters;
  std::vector<std::string> missing;
  std::vector<bool> known(shards.num_tensors(), false);
  parameters.specs = layout::parameter_specs(model);
  parameters.tensors.reserve(parameters.specs.size());
  std::erase_if(parameters.specs, [&](const layout::ParameterSpec& spec) {  // in place: the largest models have many
    bool found = false;
    const auto tensors = shards.find_roles(spec.key);
    for (const int32_t tensor : tensors) {
      if (tensor < 0) continue;
      known[static_cast<size_t>(tensor)] = found = true;
      const auto shape = shards.global_shape(tensor);
      if (!std::equal(shape.begin(), shape.end(), spec.global_shape.begin(), spec.global_shape.end())) {
        throw Error(ErrorCode::kCorruptData,
                    cat(spec.key, ": shape ", shape, ", but the checkpoint's model says ", spec.global_shape));
      }
    }
    if (found) {
      parameters.tensors.push_back(tensors);
    } else {
      missing.push_back(spec.key);
    }
    return !found;
  });
  std::map<std::string, int64_t> num_experts;  // by layer
  std::map<std::string, bool> added;
  const size_t of_model = parameters.specs.size();
  Parameters passing;  // outside the model, copied unchanged: after the model's, in the order of the source
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    if (known[t]) continue;
    const auto tensor = static_cast<int32_t>(t);
    const std::string key(shards.key(tensor));
    if (!added.emplace(key, true).second) continue;
    auto spec = layout::parameter_spec_of(key, shards.global_shape(tensor), model);
    const bool is_canonical = key.starts_with("decoder.") || key.starts_with("mtp.") || key.starts_with("embedding.") ||
                              key.starts_with("output_layer.");
    if (!spec && !is_canonical && shards.role(tensor) == TensorRole::kBuffer) {
      passing.add(layout::passthrough_spec(key, shards.global_shape(tensor)), shards.find_roles(key));
      continue;
    }
    if (!spec) {
      throw Error(ErrorCode::kUnsupported, cat(key, " (", core::role_name(shards.role(tensor)),
                                               "): the checkpoint holds it, but its model has no such parameter"));
    }
    if (spec->expert >= 0) {
      int64_t& count = num_experts[layer_of(key)];
      count = std::max(count, spec->expert + 1);
    }
    parameters.add(std::move(*spec), shards.find_roles(key));
  }
  // A model with experts or latent attention has other parameters instead of these; any other model must have them.
  if (parameters.specs.size() == of_model) {
    if (missing.empty()) return joined(std::move(parameters), std::move(passing));
    throw Error(ErrorCode::kCorruptData, cat(missing.front(), ": the model has it, but the checkpoint does not"));
  }
  for (layout::ParameterSpec& spec : parameters.specs) {
    if (spec.expert >= 0) spec.num_experts = num_experts[layer_of(spec.key)];
  }
  std::vector<size_t> order(parameters.specs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const layout::ParameterSpec &x = parameters.specs[a], &y = parameters.specs[b];
    return std::tie(x.layer, x.expert, x.key) < std::tie(y.layer, y.expert, y.key);
  });
  Parameters sorted;
  for (const size_t i : order) sorted.add(std::move(parameters.specs[i]), parameters.tensors[i]);
  return joined(std::move(sorted), std::move(passing));
}

}  // namespace

ReshardPlan plan_reshard(const Source& source, const layout::ModelLayout& layout, const ReshardOptions& options) {
  require_model(source.info(), "a parallel layout");
  ReshardPlan plan;
  plan.info = source.info();
  plan.layout = layout;
  const core::TransformerConfig& model = plan.info.model;
  const ShardTable& shards = source.shards();
  // A model with more layers or experts than there are shards is incomplete; this also bounds the list of its
  // parameters.
  const auto most = static_cast<int64_t>(shards.size());
  const std::vector<bool> with_experts = model.layers_with_experts();
  const auto expert_layers = std::max<int64_t>(1, std::count(with_experts.begin(), with_experts.end(), true));
  if (model.num_layers < 1 || model.num_layers > most || model.num_experts < 0 ||
      model.num_experts > most / expert_layers || model.num_attention_heads < 1 || model.query_groups() < 1 ||
      model.kv_channels < 1 || model.make_vocab_size_divisible_by < 1 || model.vocab_size < 1 ||
      model.hidden_size < 1 || model.ffn_hidden_size < 1) {
    throw Error(ErrorCode::kCorruptData, cat("the checkpoint's model has ", model.num_layers, " layers of hidden size ",
                                             model.hidden_size, ", but there are ", shards.size(), " shards"));
  }
  layout::validate_layout(layout, model);
  std::vector<TensorRole> kept;
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq,
                                TensorRole::kMomentumBuffer, TensorRole::kBuffer}) {
    if (!has_role(source, role)) continue;
    if (options.drop_optimizer && core::is_optimizer_role(role)) {
      plan.decisions.push_back(cat(core::role_name(role), " is dropped (--drop-optimizer)"));
    } else {
      kept.push_back(role);
    }
  }
  const auto [specs, tensors] = parameters_of(shards, model);
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto has = [of = tensors[i]](TensorRole role) { return of[static_cast<size_t>(role)] >= 0; };
    // Each trained parameter must have all optimizer state or none; a buffer has none.
    if (has(TensorRole::kBuffer)) continue;
    const bool frozen = some_are_frozen(plan.info) && std::ranges::none_of(core::kOptimizerRoles, has);
    for (const TensorRole role : kept) {
      if (role == TensorRole::kBuffer || has(role) || (frozen && core::is_optimizer_role(role))) continue;
      throw Error(ErrorCode::kCorruptData,
                  cat(specs[i].key, " (", core::role_name(role), "): the model has it, but the checkpoint does not"));
    }
  }
  plan.targets = shards_of_checkpoint(
      layout, model, specs, kept,
      [&, &keys = specs, &of = tensors](size_t spec, TensorRole role) -> std::optional<core::DType> {
        const int32_t tensor = of[spec][static_cast<size_t>(role)];
        if (tensor < 0) return std::nullopt;
        const core::DType dtype = shards.dtype(tensor);
        // The expert bias decides the routing: keep its type.
        const bool changes = options.params_dtype && role == TensorRole::kParam &&
                             keys[spec].key.find(".expert_bias") == std::string::npos;
        return changes ? *options.params_dtype : dtype;
      });
  if (options.params_dtype) {
    plan.decisions.push_back(cat("parameters become ", core::dtype_name(*options.params_dtype),
                                 "; master weights and moments keep their type"));
  }
  const int64_t padded = model.padded_vocab_size(layout.tensor_model_parallel_size);
  plan.info.layout = layout::layout_to_json(layout);
  plan.info.model_extra["padded_vocab_size"] = padded;
  plan.decisions.push_back(
      cat("vocabulary: ", model.vocab_size, " true rows are stored; in memory they are padded to ", padded));
  if (!model.untie_embeddings_and_output_weights) {
    plan.decisions.push_back("tied embeddings: stored once, with the first stage");
  }
  return plan;
}

std::string hash_of_plan(const Source& source, const ReshardPlan& plan, bool compress) {
  uint64_t hash = compress ? 3 : 2;  // includes the version of the notes' format: 2
  const auto mix = [&hash](const auto& text) {
    hash = hash * 0x9E3779B97F4A7C15u + kernels::xxh3(text.data(), text.size() * sizeof(text[0]));
  };
  const ShardTable& from = source.shards();
  for (size_t t = 0; t < from.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto logical = source.logical_xxh3(std::string(from.key(tensor)), from.role(tensor));
    if (!logical) return "";
    hash = hash * 0x9E3779B97F4A7C15u + *logical;
  }
  mix(cat(plan.info.iteration, plan.info.layout.dump(), plan.info.model_extra.dump(), plan.info.common.dump()));
  const ShardTable& to = plan.targets.shards;
  for (size_t i = 0; i < to.size(); ++i) {
    const core::ShardedTensor target = to[i];
    mix(target.key);
    mix(target.global_offset);
    mix(target.local_shape);
    hash += static_cast<uint64_t>(plan.targets.ranks[i]) * 4096 + static_cast<uint64_t>(target.role) * 64 +
            static_cast<uint64_t>(target.dtype);
  }
  return core::hex16(hash);
}

ExpectedHash hashes_to_keep(const Source& source) {
  return [&source](const std::string& key, TensorRole role, core::DType dtype) -> std::optional<uint64_t> {
    const auto tensor = source.shards().find(key, role);
    if (!tensor || source.shards().dtype(*tensor) != dtype) return std::nullopt;
    return source.logical_xxh3(key, role);
  };
}

}  // namespace ms::ckpt
