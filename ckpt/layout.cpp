#include "ckpt/layout.h"

#include <algorithm>

#include "core/error.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

nlohmann::json layout_to_json(const ModelLayout& layout) {
  return {{"tp", layout.tensor_model_parallel_size},
          {"pp", layout.pipeline_model_parallel_size},
          {"vpp", layout.virtual_pipeline_model_parallel_size},
          {"ep", 1},
          {"etp", 1},
          {"cp", 1},
          {"dp", layout.data_parallel_size},
          {"order", "tp-cp-ep-dp-pp"},
          {"zero", layout.use_distributed_optimizer ? 1 : 0},
          {"layer_map", "even"}};
}

ModelLayout layout_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw Error(ErrorCode::kCorruptData, "layout: expected a JSON object");
  const auto size = [&](const char* key, int fallback, int least) {
    const auto found = json.find(key);
    if (found == json.end()) return fallback;
    if (!found->is_number_integer() || found->get<int64_t>() < least || found->get<int64_t>() > 1 << 24) {
      throw Error(ErrorCode::kCorruptData, cat("layout: \"", key, "\" is ", found->dump(), ", not a size"));
    }
    return found->get<int>();
  };
  for (const char* key : {"ep", "etp", "cp"}) {
    if (size(key, 1, 1) != 1) {
      throw Error(ErrorCode::kUnsupported, cat("layout: ", key, " ", size(key, 1, 1), " is not supported yet, only 1"));
    }
  }
  if (size("zero", 0, 0) > 1) throw Error(ErrorCode::kUnsupported, "layout: zero stages above 1 are not supported yet");
  const auto text = [&](const char* key, const char* only) {
    if (const auto found = json.find(key); found != json.end() && *found != only) {
      throw Error(ErrorCode::kUnsupported, cat("layout: ", key, " ", found->dump(), ": only \"", only, "\" is known"));
    }
  };
  text("order", "tp-cp-ep-dp-pp");
  text("layer_map", "even");
  return {.tensor_model_parallel_size = size("tp", 1, 1),
          .pipeline_model_parallel_size = size("pp", 1, 1),
          .data_parallel_size = size("dp", 1, 1),
          .use_distributed_optimizer = size("zero", 0, 0) == 1,
          .virtual_pipeline_model_parallel_size = size("vpp", 1, 1)};
}

RankCoordinates coordinates_of_rank(const ModelLayout& layout, int rank) {
  const int tp = layout.tensor_model_parallel_size, dp = layout.data_parallel_size;
  return {rank % tp, rank / tp % dp, rank / (tp * dp)};
}

std::vector<ParameterSpec> parameter_specs(const core::TransformerConfig& config) {
  const int64_t hidden = config.hidden_size, ffn = config.ffn_hidden_size, head = config.kv_channels;
  const TpRule fc1_rule = config.gated() ? TpRule::kGatedRows : TpRule::kRows;
  const bool qkv_bias = config.add_bias_linear || config.add_qkv_bias;
  std::vector<ParameterSpec> specs;
  int64_t layer = -1;
  std::string prefix;
  const auto add = [&](std::string_view name, core::Dims shape, TpRule rule) {
    specs.push_back({cat(prefix, name), std::move(shape), rule, layer, false});
  };
  // weight, bias: names of a norm's parameters.
  const auto add_norm = [&](std::string_view weight, std::string_view bias, int64_t size) {
    add(weight, {size}, TpRule::kReplicated);
    if (config.has_layer_norm()) add(bias, {size}, TpRule::kReplicated);
  };
  const bool tied = !config.untie_embeddings_and_output_weights;
  add("embedding.word_embeddings.weight", {config.vocab_size, hidden}, TpRule::kVocabRows);
  specs.back().is_tied_embedding = tied;
  if (config.has_learned_positions()) {
    add("embedding.position_embeddings.weight", {config.max_position_embeddings, hidden}, TpRule::kReplicated);
  }
  for (layer = 0; layer < config.num_layers; ++layer) {
    prefix = cat("decoder.layers.", layer, ".");
    add_norm("self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    add("self_attention.linear_qkv.weight", {config.qkv_rows(), hidden}, TpRule::kRows);
    if (qkv_bias) add("self_attention.linear_qkv.bias", {config.qkv_rows()}, TpRule::kRows);
    if (config.qk_layernorm) {
      add_norm("self_attention.q_layernorm.weight", "self_attention.q_layernorm.bias", head);
      add_norm("self_attention.k_layernorm.weight", "self_attention.k_layernorm.bias", head);
    }
    add("self_attention.linear_proj.weight", {hidden, config.num_attention_heads * head}, TpRule::kColumns);
    if (config.add_bias_linear) add("self_attention.linear_proj.bias", {hidden}, TpRule::kReplicated);
    if (config.post_norm) add_norm("post_self_attn_layernorm.weight", "post_self_attn_layernorm.bias", hidden);
    add_norm("mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_bias", hidden);
    add("mlp.linear_fc1.weight", {config.fc1_rows(), hidden}, fc1_rule);
    if (config.add_bias_linear) add("mlp.linear_fc1.bias", {config.fc1_rows()}, fc1_rule);
    add("mlp.linear_fc2.weight", {hidden, ffn}, TpRule::kColumns);
    if (config.add_bias_linear) add("mlp.linear_fc2.bias", {hidden}, TpRule::kReplicated);
    if (config.post_norm) add_norm("post_mlp_layernorm.weight", "post_mlp_layernorm.bias", hidden);
  }
  prefix.clear();
  add_norm("decoder.final_layernorm.weight", "decoder.final_layernorm.bias", hidden);
  if (!tied) add("output_layer.weight", {config.vocab_size, hidden}, TpRule::kVocabRows);
  return specs;
}

void validate_layout(const ModelLayout& layout, const core::TransformerConfig& config) {
  const int tp = layout.tensor_model_parallel_size, pp = layout.pipeline_model_parallel_size;
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  if (tp < 1) refuse("--tensor-model-parallel-size ", tp, ": give a positive number");
  if (pp < 1) refuse("--pipeline-model-parallel-size ", pp, ": give a positive number");
  const int vpp = layout.virtual_pipeline_model_parallel_size;
  if (vpp < 1) refuse(vpp, " virtual pipeline stages on each rank: give a positive number");
  if (vpp > 1 && pp < 2) refuse(vpp, " virtual pipeline stages need --pipeline-model-parallel-size above 1");
  if (layout.data_parallel_size < 1) refuse("data-parallel size ", layout.data_parallel_size, ": give a positive one");
  const auto divides = [&](int64_t total, const char* name, int parts, const char* flag) {
    if (total % parts != 0) refuse(name, " ", total, " is not a multiple of ", flag, " ", parts);
  };
  const char* tp_flag = "--tensor-model-parallel-size";
  divides(config.num_layers, "--num-layers", pp, "--pipeline-model-parallel-size");
  if (config.num_layers % (int64_t{pp} * vpp) != 0) {
    refuse("--num-layers ", config.num_layers, " is not a multiple of --pipeline-model-parallel-size ", pp, " x ", vpp,
           " virtual stages on each rank");
  }
  divides(config.num_attention_heads, "--num-attention-heads", tp, tp_flag);
  divides(config.qkv_rows(), "the number of QKV rows", tp, tp_flag);
  divides(config.ffn_hidden_size, "--ffn-hidden-size", tp, tp_flag);
  if (config.query_groups() % tp != 0 && tp % config.query_groups() != 0) {
    refuse("--num-query-groups ", config.query_groups(), " and ", tp_flag, " ", tp, ": neither divides the other");
  }
}

core::Dims local_shape(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size) {
  core::Dims shape = spec.global_shape;
  switch (spec.rule) {
    case TpRule::kReplicated:
      break;
    case TpRule::kRows:
    case TpRule::kGatedRows:
      shape[0] /= tp_size;
      break;
    case TpRule::kColumns:
      shape[1] /= tp_size;
      break;
    case TpRule::kVocabRows:
      shape[0] = config.padded_vocab_size(tp_size) / tp_size;
      break;
  }
  return shape;
}

std::vector<Box> boxes_of_local_range(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size,
                                      int tp_rank, int64_t begin, int64_t end) {
  // The local tensor is a stack of parts, each a box of the global tensor.
  struct Part {
    core::Dims shape;         // extents within the local tensor
    core::Dims global_start;  // global index of its first element
  };
  const core::Dims local = local_shape(spec, config, tp_size);
  core::Dims start(local.size(), 0);
  std::vector<Part> parts;
  if (spec.rule == TpRule::kGatedRows) {
    core::Dims half = local;
    half[0] /= 2;
    start[0] = tp_rank * half[0];
    parts.push_back({half, start});
    start[0] += spec.global_shape[0] / 2;
    parts.push_back({half, start});
  } else {
    if (spec.rule == TpRule::kColumns) start[1] = tp_rank * local[1];
    if (spec.rule == TpRule::kRows || spec.rule == TpRule::kVocabRows) start[0] = tp_rank * local[0];
    core::Dims shape = local;
    if (spec.rule == TpRule::kVocabRows) {  // the true rows only
      shape[0] = std::clamp<int64_t>(spec.global_shape[0] - start[0], 0, local[0]);
    }
    parts.push_back({std::move(shape), start});
  }
  std::vector<Box> boxes;
  int64_t part_begin = 0;
  for (const Part& part : parts) {
    const int64_t size = core::num_elements(part.shape);
    const int64_t from = std::clamp<int64_t>(begin - part_begin, 0, size);
    const int64_t to = std::clamp<int64_t>(end - part_begin, 0, size);
    for_each_box_of_range(part.shape, from, to - from, [&](const Box& box, int64_t) {
      Box global = box;
      for (size_t axis = 0; axis < global.offset.size(); ++axis) global.offset[axis] += part.global_start[axis];
      boxes.push_back(std::move(global));
    });
    part_begin += size;
  }
  return boxes;
}

FlatRange distributed_range(int64_t numel, int dp_size, int dp_rank) {
  if (dp_size == 1) return {0, numel};
  const int64_t block = ((numel + dp_size - 1) / dp_size + 63) / 64 * 64;
  return {std::min(numel, block * dp_rank), std::min(numel, block * (dp_rank + 1))};
}

int virtual_pipeline_size(const core::TransformerConfig& config, int pp, int64_t layers_per_chunk) {
  if (layers_per_chunk == 0) return 1;
  // The product of a hostile pair overflows: it is computed only where it is at most num_layers.
  if (pp < 1 || layers_per_chunk < 0 || layers_per_chunk > config.num_layers / pp ||
      config.num_layers % (pp * layers_per_chunk) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--num-layers-per-virtual-pipeline-stage ", layers_per_chunk, ": the model's ", config.num_layers,
                    " layers are not a multiple of it x pipeline-model-parallel size ", pp));
  }
  return static_cast<int>(config.num_layers / (pp * layers_per_chunk));
}

LayerRange layers_of_chunk(const core::TransformerConfig& config, const ModelLayout& layout, int pp, int chunk) {
  const int stages = layout.pipeline_model_parallel_size;
  const int64_t count = config.num_layers / (int64_t{stages} * layout.virtual_pipeline_model_parallel_size);
  return {(int64_t{chunk} * stages + pp) * count, count};
}

bool stage_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int pp) {
  const int last = layout.pipeline_model_parallel_size - 1;
  if (spec.layer < 0) return pp == 0 || (spec.is_tied_embedding && pp == last);
  if (spec.layer >= config.num_layers) return pp == last;
  return spec.layer / layers_of_chunk(config, layout, pp, 0).count % layout.pipeline_model_parallel_size == pp;
}

std::vector<core::ShardedTensor> shards_of_parameter(const ParameterSpec& spec, const core::TransformerConfig& config,
                                                     const ModelLayout& layout, int rank, const RoleSpec& role) {
  const RankCoordinates at = coordinates_of_rank(layout, rank);
  if (!stage_holds(spec, config, layout, at.pp)) return {};
  const int tp_size = layout.tensor_model_parallel_size, dp_size = layout.data_parallel_size;
  const bool spread = layout.use_distributed_optimizer &&
                      (role.role == core::TensorRole::kMaster || role.role == core::TensorRole::kExpAvg ||
                       role.role == core::TensorRole::kExpAvgSq);
  const int64_t numel = core::num_elements(local_shape(spec, config, tp_size));
  const FlatRange range = spread ? distributed_range(numel, dp_size, at.dp) : FlatRange{0, numel};
  // Copies are numbered: over tp where tensor parallelism does not cut, over dp where nothing is spread, and the tied
  // embedding of the last stage after those of the first.
  const int tp_copy = spec.rule == TpRule::kReplicated ? at.tp : 0;
  const int tp_copies = spec.rule == TpRule::kReplicated ? tp_size : 1;
  const int dp_copy = spread ? 0 : at.dp;
  const int dp_copies = spread ? 1 : dp_size;
  const bool tied_copy = spec.is_tied_embedding && at.pp != 0;
  const int replica = tp_copy + tp_copies * (dp_copy + dp_copies * (tied_copy ? 1 : 0));
  std::vector<core::ShardedTensor> shards;
  for (Box& box : boxes_of_local_range(spec, config, tp_size, at.tp, range.begin, range.end)) {
    shards.push_back(
        {spec.key, role.role, role.dtype, spec.global_shape, std::move(box.offset), std::move(box.extent), replica});
  }
  return shards;
}

std::vector<core::ShardedTensor> shards_of_rank(const ModelLayout& layout, const core::TransformerConfig& config,
                                                int rank, std::span<const RoleSpec> roles) {
  std::vector<core::ShardedTensor> shards;
  const auto specs = parameter_specs(config);
  for (const RoleSpec& role : roles) {
    for (const ParameterSpec& spec : specs) {
      for (auto& shard : shards_of_parameter(spec, config, layout, rank, role)) shards.push_back(std::move(shard));
    }
  }
  return shards;
}

ShardList shards_of_checkpoint(const ModelLayout& layout, const core::TransformerConfig& config,
                               std::span<const RoleSpec> roles) {
  validate_layout(layout, config);
  ShardList list;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    for (auto& shard : shards_of_rank(layout, config, rank, roles)) {
      if (shard.replica_id != 0) continue;
      list.shards.push_back(std::move(shard));
      list.ranks.push_back(rank);
    }
  }
  return list;
}

}  // namespace ms::ckpt
