#include "ckpt/layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

namespace {
constexpr const char* kDpBeforePp = "tp-cp-ep-dp-pp";
constexpr const char* kPpBeforeDp = "tp-cp-ep-pp-dp";
}  // namespace

nlohmann::json layout_to_json(const ModelLayout& layout) {
  nlohmann::json json = {{"tp", layout.tensor_model_parallel_size},
                         {"pp", layout.pipeline_model_parallel_size},
                         {"vpp", layout.virtual_pipeline_model_parallel_size},
                         {"ep", layout.expert_model_parallel_size},
                         {"etp", layout.expert_tensor_parallel_size},
                         {"cp", 1},
                         {"dp", layout.data_parallel_size},
                         {"order", layout.pp_before_dp ? kPpBeforeDp : kDpBeforePp},
                         {"zero", layout.zero_stage},
                         {"layer_map", "even"}};
  if (!layout.num_layer_list.empty()) json["layer_map"] = layout.num_layer_list;
  return json;
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
  if (size("cp", 1, 1) != 1) {
    throw Error(ErrorCode::kUnsupported, cat("layout: cp ", size("cp", 1, 1), " is not supported yet, only 1"));
  }
  const auto order = json.find("order");
  if (order != json.end() && *order != kDpBeforePp && *order != kPpBeforeDp) {
    throw Error(ErrorCode::kUnsupported, cat("layout: order ", order->dump(), ": only \"", kDpBeforePp, "\" and \"",
                                             kPpBeforeDp, "\" are supported"));
  }
  ModelLayout layout = {.tensor_model_parallel_size = size("tp", 1, 1),
                        .pipeline_model_parallel_size = size("pp", 1, 1),
                        .data_parallel_size = size("dp", 1, 1),
                        .zero_stage = size("zero", 0, 0),
                        .virtual_pipeline_model_parallel_size = size("vpp", 1, 1),
                        .expert_model_parallel_size = size("ep", 1, 1),
                        .expert_tensor_parallel_size = size("etp", 1, 1)};
  layout.pp_before_dp = order != json.end() && *order == kPpBeforeDp;
  if (layout.zero_stage > 3) {
    throw Error(ErrorCode::kCorruptData, cat("layout: zero ", layout.zero_stage, ": stages are 0 to 3"));
  }
  if (const auto map = json.find("layer_map"); map != json.end() && *map != "even") {
    if (!map->is_array() || map->empty()) {
      throw Error(ErrorCode::kUnsupported,
                  cat("layout: layer_map ", map->dump().substr(0, 80), ": only \"even\" and lists are supported"));
    }
    for (const auto& layers : *map) {
      if (!layers.is_number_integer() || layers < 0 || layers > 1 << 24) {
        throw Error(ErrorCode::kCorruptData, cat("layout: layer_map holds ", layers.dump().substr(0, 40)));
      }
      layout.num_layer_list.push_back(layers.get<int64_t>());
    }
  }
  return layout;
}

RankCoordinates coordinates_of_rank(const ModelLayout& layout, int rank) {
  const int tp = layout.tensor_model_parallel_size, dp = layout.data_parallel_size;
  const int pp = layout.pipeline_model_parallel_size;
  if (layout.pp_before_dp) return {rank % tp, rank / (tp * pp), rank / tp % pp};
  return {rank % tp, rank / tp % dp, rank / (tp * dp)};
}

int rank_of_coordinates(const ModelLayout& layout, const RankCoordinates& at) {
  const int tp = layout.tensor_model_parallel_size;
  if (layout.pp_before_dp) return (at.dp * layout.pipeline_model_parallel_size + at.pp) * tp + at.tp;
  return (at.pp * layout.data_parallel_size + at.dp) * tp + at.tp;
}

namespace {

// Lists the parameters of a model in order.
class SpecList {
 public:
  explicit SpecList(const core::TransformerConfig& config) : config_(config) {}

  std::vector<ParameterSpec> make() {
    const int64_t hidden = config_.hidden_size;
    const bool tied = !config_.untie_embeddings_and_output_weights;
    add("embedding.word_embeddings.weight", {config_.vocab_size, hidden}, TpRule::kVocabRows);
    specs_.back().is_tied_embedding = tied;
    if (config_.has_learned_positions()) {
      add("embedding.position_embeddings.weight", {config_.max_position_embeddings, hidden}, TpRule::kReplicated);
    }
    const std::vector<bool> with_experts = config_.layers_with_experts();
    if (static_cast<int64_t>(with_experts.size()) != config_.num_layers ||
        config_.mtp_num_layers > config_.num_layers) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--moe-layer-freq ", config_.moe_layer_freq, " and --mtp-num-layers ", config_.mtp_num_layers,
                      " do not match a model of ", config_.num_layers, " layers"));
    }
    for (layer_ = 0; layer_ < config_.num_layers; ++layer_) {
      prefix_ = cat("decoder.layers.", layer_, ".");
      add_layer(with_experts[static_cast<size_t>(layer_)]);
    }
    prefix_.clear();
    add_norm("decoder.final_layernorm.weight", "decoder.final_layernorm.bias", hidden);
    if (!tied) add("output_layer.weight", {config_.vocab_size, hidden}, TpRule::kVocabRows);
    for (int64_t k = 0; k < config_.mtp_num_layers; ++k) {  // megatron/core/transformer/multi_token_prediction.py
      prefix_ = cat("mtp.layers.", k, ".");
      add_norm("enorm.weight", "enorm.bias", hidden);
      add_norm("hnorm.weight", "hnorm.bias", hidden);
      add("eh_proj.weight", {hidden, 2 * hidden}, TpRule::kRows);
      prefix_ += "transformer_layer.";
      add_layer(with_experts.back());
      prefix_ = cat("mtp.layers.", k, ".");
      add_norm("final_layernorm.weight", "final_layernorm.bias", hidden);
    }
    return std::move(specs_);
  }

 private:
  void add(std::string_view name, const core::Dims& shape, TpRule rule) {
    specs_.push_back({.key = cat(prefix_, name), .global_shape = shape, .rule = rule, .layer = layer_});
  }
  // weight, bias: names of a norm's parameters.
  void add_norm(std::string_view weight, std::string_view bias, int64_t size) {
    add(weight, {size}, TpRule::kReplicated);
    if (config_.has_layer_norm()) add(bias, {size}, TpRule::kReplicated);
  }

  void add_layer(bool has_experts) {
    const int64_t hidden = config_.hidden_size;
    if (config_.multi_latent_attention) {
      add_latent_attention();
    } else {
      add_attention();
    }
    add("self_attention.linear_proj.weight", {hidden, config_.proj_columns()}, TpRule::kColumns);
    if (config_.add_bias_linear) add("self_attention.linear_proj.bias", {hidden}, TpRule::kReplicated);
    if (config_.post_norm) add_norm("post_self_attn_layernorm.weight", "post_self_attn_layernorm.bias", hidden);
    if (has_experts) {
      add_experts();
    } else {
      add_mlp();
    }
    if (config_.post_norm) add_norm("post_mlp_layernorm.weight", "post_mlp_layernorm.bias", hidden);
  }

  void add_attention() {
    const int64_t hidden = config_.hidden_size;
    if (config_.pre_norm) {
      add_norm("self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    }
    add("self_attention.linear_qkv.weight", {config_.qkv_rows(), hidden}, TpRule::kRows);
    if (config_.add_bias_linear || config_.add_qkv_bias) {
      add("self_attention.linear_qkv.bias", {config_.qkv_rows()}, TpRule::kRows);
    }
    if (!config_.qk_layernorm) return;
    add_norm("self_attention.q_layernorm.weight", "self_attention.q_layernorm.bias", config_.q_norm_size());
    add_norm("self_attention.k_layernorm.weight", "self_attention.k_layernorm.bias", config_.k_norm_size());
  }

  void add_latent_attention() {
    const int64_t hidden = config_.hidden_size, query_rank = config_.q_lora_rank, rank = config_.kv_lora_rank;
    const auto add_rank_norm = [&](const char* weight, const char* bias, int64_t size) {
      if (config_.qk_layernorm) add_norm(weight, bias, size);
    };
    add_norm("input_layernorm.weight", "input_layernorm.bias", hidden);
    if (query_rank > 0) {
      add("self_attention.linear_q_down_proj.weight", {query_rank, hidden}, TpRule::kReplicated);
      add_rank_norm("self_attention.linear_q_up_proj.layer_norm_weight",
                    "self_attention.linear_q_up_proj.layer_norm_bias", query_rank);
      add("self_attention.linear_q_up_proj.weight", {config_.latent_query_rows(), query_rank}, TpRule::kRows);
    } else {
      add("self_attention.linear_q_proj.weight", {config_.latent_query_rows(), hidden}, TpRule::kRows);
    }
    add("self_attention.linear_kv_down_proj.weight", {rank + config_.qk_pos_emb_head_dim, hidden}, TpRule::kReplicated);
    add_rank_norm("self_attention.linear_kv_up_proj.layer_norm_weight",
                  "self_attention.linear_kv_up_proj.layer_norm_bias", rank);
    add("self_attention.linear_kv_up_proj.weight", {config_.latent_key_value_rows(), rank}, TpRule::kRows);
  }

  void add_mlp() {
    const int64_t hidden = config_.hidden_size;
    if (config_.pre_norm) add_norm("mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_bias", hidden);
    add("mlp.linear_fc1.weight", {config_.fc1_rows(), hidden}, fc1_rule());
    if (config_.add_bias_linear) add("mlp.linear_fc1.bias", {config_.fc1_rows()}, fc1_rule());
    add("mlp.linear_fc2.weight", {hidden, config_.ffn_hidden_size}, TpRule::kColumns);
    if (config_.add_bias_linear) add("mlp.linear_fc2.bias", {hidden}, TpRule::kReplicated);
  }

  void add_experts() {
    const int64_t hidden = config_.hidden_size, experts = config_.num_experts;
    const int64_t shared = config_.moe_shared_expert_intermediate_size;
    add_norm("pre_mlp_layernorm.weight", "pre_mlp_layernorm.bias", hidden);
    add("mlp.router.weight", {experts, hidden}, TpRule::kReplicated);
    if (config_.moe_router_enable_expert_bias) {
      add("mlp.router.expert_bias", {experts}, TpRule::kReplicated);
      specs_.back().is_buffer = true;
    }
    for (int64_t expert = 0; expert < experts; ++expert) {
      const std::string name = cat("mlp.experts.local_experts.", expert);
      for (const bool first : {true, false}) {
        if (first) {
          add(cat(name, ".linear_fc1.weight"), {config_.expert_fc1_rows(), hidden}, fc1_rule());
        } else {
          add(cat(name, ".linear_fc2.weight"), {hidden, config_.moe_ffn_hidden_size}, TpRule::kColumns);
        }
        specs_.back().expert = expert;
        specs_.back().num_experts = experts;
      }
    }
    if (shared == 0) return;
    add("mlp.shared_experts.linear_fc1.weight", {(config_.gated() ? 2 : 1) * shared, hidden}, fc1_rule());
    add("mlp.shared_experts.linear_fc2.weight", {hidden, shared}, TpRule::kColumns);
    if (config_.moe_shared_expert_gate) add("mlp.shared_experts.gate_weight", {1, hidden}, TpRule::kReplicated);
  }

  TpRule fc1_rule() const { return config_.gated() ? TpRule::kGatedRows : TpRule::kRows; }

  const core::TransformerConfig& config_;
  std::vector<ParameterSpec> specs_;
  int64_t layer_ = -1;
  std::string prefix_;
};

}  // namespace

std::vector<ParameterSpec> parameter_specs(const core::TransformerConfig& config) { return SpecList(config).make(); }

std::optional<ParameterSpec> parameter_spec_of(const std::string& key, std::span<const int64_t> global_shape,
                                               const core::TransformerConfig& config) {
  struct Rule {
    std::string_view name;  // after the layer's prefix
    TpRule rule;
  };
  const TpRule fc1_rule = config.gated() ? TpRule::kGatedRows : TpRule::kRows;
  // megatron/core/models/gpt/gpt_layer_specs.py, core/transformer/multi_latent_attention.py, core/transformer/moe.
  const Rule rules[] = {
      {"input_layernorm.weight", TpRule::kReplicated},
      {"pre_mlp_layernorm.weight", TpRule::kReplicated},
      {"self_attention.linear_q_proj.weight", TpRule::kRows},
      {"self_attention.linear_q_down_proj.weight", TpRule::kReplicated},
      {"self_attention.linear_q_up_proj.layer_norm_weight", TpRule::kReplicated},
      {"self_attention.linear_q_up_proj.weight", TpRule::kRows},
      {"self_attention.linear_kv_down_proj.weight", TpRule::kReplicated},
      {"self_attention.linear_kv_up_proj.layer_norm_weight", TpRule::kReplicated},
      {"self_attention.linear_kv_up_proj.weight", TpRule::kRows},
      {"self_attention.q_layernorm.weight", TpRule::kReplicated},
      {"self_attention.kv_layernorm.weight", TpRule::kReplicated},
      {"self_attention.linear_proj.weight", TpRule::kColumns},
      {"mlp.linear_fc1.layer_norm_weight", TpRule::kReplicated},
      {"mlp.linear_fc1.weight", fc1_rule},
      {"mlp.linear_fc2.weight", TpRule::kColumns},
      {"mlp.router.weight", TpRule::kReplicated},
      {"mlp.router.expert_bias", TpRule::kReplicated},
      {"mlp.shared_experts.gate_weight", TpRule::kReplicated},
      {"mlp.shared_experts.linear_fc1.weight", fc1_rule},
      {"mlp.shared_experts.linear_fc2.weight", TpRule::kColumns},
      {"linear_fc1.weight", fc1_rule},  // of an expert
      {"linear_fc2.weight", TpRule::kColumns},
      {"enorm.weight", TpRule::kReplicated},
      {"hnorm.weight", TpRule::kReplicated},
      {"eh_proj.weight", TpRule::kRows},
      {"final_layernorm.weight", TpRule::kReplicated},
  };
  std::string_view rest = key;
  const auto take = [&](std::string_view prefix) {
    const bool has = rest.substr(0, prefix.size()) == prefix;
    if (has) rest.remove_prefix(prefix.size());
    return has;
  };
  const auto take_number = [&]() -> int64_t {  // with the dot after it; -1 if there is none
    int64_t number = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != '.' || number < 0) return -1;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
    return number;
  };
  ParameterSpec spec{key, {global_shape.begin(), global_shape.end()}};
  const bool mtp = take("mtp.layers.");
  if (!mtp && !take("decoder.layers.")) return std::nullopt;
  spec.layer = take_number();
  if (spec.layer < 0 || (!mtp && spec.layer >= config.num_layers)) return std::nullopt;
  if (mtp) {
    spec.layer = config.num_layers;
    take("transformer_layer.");
  }
  if (take("mlp.experts.local_experts.") && (spec.expert = take_number()) < 0) return std::nullopt;
  for (const Rule& rule : rules) {
    if (rule.name != rest || (spec.expert >= 0) != (rest.rfind("linear_fc", 0) == 0)) continue;
    spec.rule = rule.rule;
    const size_t axes = rule.rule == TpRule::kReplicated ? spec.global_shape.size() : 2;
    return spec.global_shape.size() == axes ? std::optional(std::move(spec)) : std::nullopt;
  }
  return std::nullopt;
}

ParameterSpec passthrough_spec(std::string key, std::span<const int64_t> global_shape) {
  return {.key = std::move(key),
          .global_shape = {global_shape.begin(), global_shape.end()},
          .is_buffer = true,
          .layer = -1};
}

void validate_layer_map(const ModelLayout& layout, int64_t num_layers) {
  const int tp = layout.tensor_model_parallel_size, pp = layout.pipeline_model_parallel_size;
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  if (tp < 1) refuse(layout.size_flags.tensor, " ", tp, ": give a positive number");
  if (pp < 1) refuse(layout.size_flags.pipeline, " ", pp, ": give a positive number");
  const int vpp = layout.virtual_pipeline_model_parallel_size;
  if (vpp < 1) refuse(vpp, " virtual pipeline stages on each rank: give a positive number");
  if (vpp > 1 && pp < 2) refuse(vpp, " virtual pipeline stages need ", layout.size_flags.pipeline, " above 1");
  if (layout.data_parallel_size < 1) refuse("data-parallel size ", layout.data_parallel_size, ": give a positive one");
  if (layout.zero_stage < 0 || layout.zero_stage > 3) refuse("ZeRO stage ", layout.zero_stage, ": expected 0 to 3");
  const int ep = layout.expert_model_parallel_size, etp = layout.expert_tensor_parallel_size;
  if (ep < 1 || etp < 1) refuse("expert-parallel sizes ", ep, " and ", etp, ": give positive numbers");
  if (int64_t{tp} * layout.data_parallel_size % (int64_t{ep} * etp) != 0) {
    refuse("tensor- x data-parallel size ", tp, " x ", layout.data_parallel_size,
           " is not a multiple of expert-parallel x expert-tensor-parallel size ", ep, " x ", etp);
  }
  if (!layout.num_layer_list.empty()) {
    const auto& list = layout.num_layer_list;
    if (list.size() != static_cast<size_t>(pp) * static_cast<size_t>(vpp)) {
      refuse("--num-layer-list has ", list.size(), " entries, expected ", int64_t{pp} * vpp,
             ": one for each (virtual) pipeline stage");
    }
    int64_t sum = 0;
    for (const int64_t layers : list) {
      if (layers < 1 || layers > num_layers) refuse("--num-layer-list: ", layers, " layers in a stage");
      sum += layers;
    }
    if (sum != num_layers) refuse("--num-layer-list adds up to ", sum, " layers, but the model has ", num_layers);
    return;
  }
  if (num_layers % pp != 0) {
    refuse("--num-layers ", num_layers, " is not a multiple of ", layout.size_flags.pipeline, " ", pp);
  }
  if (num_layers % (int64_t{pp} * vpp) != 0) {
    refuse("--num-layers ", num_layers, " is not a multiple of ", layout.size_flags.pipeline, " ", pp, " x ", vpp,
           " virtual stages on each rank");
  }
}

void validate_layout(const ModelLayout& layout, const core::TransformerConfig& config) {
  validate_layer_map(layout, config.num_layers);
  const int tp = layout.tensor_model_parallel_size;
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  const auto divides = [&](int64_t total, const char* name, int parts, const char* flag) {
    if (total % parts != 0) refuse(name, " ", total, " is not a multiple of ", flag, " ", parts);
  };
  const char* tp_flag = layout.size_flags.tensor;
  divides(config.num_attention_heads, "--num-attention-heads", tp, tp_flag);
  const std::vector<bool> with_experts = config.layers_with_experts();
  if (std::find(with_experts.begin(), with_experts.end(), false) != with_experts.end()) {
    divides(config.ffn_hidden_size, "--ffn-hidden-size", tp, tp_flag);
  }
  if (config.has_experts()) {
    divides(config.num_experts, "--num-experts", layout.expert_model_parallel_size, layout.size_flags.expert);
    divides(config.moe_ffn_hidden_size, "--moe-ffn-hidden-size", layout.expert_tensor_parallel_size,
            "--expert-tensor-parallel-size");
    divides(config.moe_shared_expert_intermediate_size, "--moe-shared-expert-intermediate-size", tp, tp_flag);
  }
  if (config.multi_latent_attention) return;
  divides(config.qkv_rows(), "the number of QKV rows", tp, tp_flag);
  if (config.query_groups() % tp != 0 && tp % config.query_groups() != 0) {
    refuse("--num-query-groups ", config.query_groups(), " and ", tp_flag, " ", tp, ": neither divides the other");
  }
}

std::vector<int64_t> uneven_layer_list(int64_t num_layers, int pp, int64_t first, int64_t last) {
  const int given = (first > 0) + (last > 0);
  const int64_t middle = num_layers - first - last;
  if (pp < 1 || first < 0 || last < 0 || first > num_layers || last > num_layers || middle < 0 || given > pp ||
      (given == pp ? middle != 0 : middle % (pp - given) != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--decoder-first-pipeline-num-layers ", first, " and --decoder-last-pipeline-num-layers ", last,
                    ": the other ", middle, " of ", num_layers,
                    " layers cannot be split evenly over the other stages "
                    "of ",
                    pp));
  }
  std::vector<int64_t> list;
  for (int stage = 0; stage < pp; ++stage) {
    const bool is_first = stage == 0 && first > 0, is_last = stage == pp - 1 && last > 0;
    list.push_back(is_first ? first : is_last ? last : middle / (pp - given));
  }
  return list;
}

namespace {

// Writes local_shape to an array; returns the number of axes.
size_t local_dims(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size, int64_t* shape) {
  std::copy(spec.global_shape.begin(), spec.global_shape.end(), shape);
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
  return spec.global_shape.size();
}

// As boxes_of_local_range, without allocating a Box per box: emit(offset, extent).
template <class Emit>
void for_each_local_box(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size, int tp_rank,
                        int64_t begin, int64_t end, const Emit& emit) {
  // The local tensor is a stack of parts; each is a box of the global tensor at offset `start`.
  std::array<int64_t, kMaxAxes> local, start{}, offset;
  const size_t axes = local_dims(spec, config, tp_size, local.data());
  const bool gated = spec.rule == TpRule::kGatedRows;
  if (gated) local[0] /= 2;
  if (spec.rule == TpRule::kColumns) start[1] = tp_rank * local[1];
  if (gated || spec.rule == TpRule::kRows || spec.rule == TpRule::kVocabRows) start[0] = tp_rank * local[0];
  if (spec.rule == TpRule::kVocabRows) {  // only the true rows
    local[0] = std::clamp<int64_t>(spec.global_shape[0] - start[0], 0, local[0]);
  }
  int64_t size = 1, part_begin = 0;
  for (size_t axis = 0; axis < axes; ++axis) size *= local[axis];
  for (int part = 0; part < (gated ? 2 : 1); ++part) {
    const int64_t from = std::clamp<int64_t>(begin - part_begin, 0, size);
    const int64_t to = std::clamp<int64_t>(end - part_begin, 0, size);
    if (from == 0 && to == size) {  // the whole part: the common case, without divisions
      if (size > 0) emit(start.data(), local.data());
    } else {
      for_each_piece_of_range({local.data(), axes}, from, to - from,
                              [&](const int64_t* at, const int64_t* extent, int64_t) {
                                for (size_t axis = 0; axis < axes; ++axis) offset[axis] = at[axis] + start[axis];
                                emit(offset.data(), extent);
                              });
    }
    part_begin += size;
    if (gated) start[0] += spec.global_shape[0] / 2;
  }
}

bool is_spread(const ModelLayout& layout, core::TensorRole role) {
  if (role == core::TensorRole::kBuffer) return false;
  return layout.zero_stage >= (role == core::TensorRole::kParam ? 3 : 1);
}

// The shards of one parameter and role on the rank at these coordinates, whose stage holds it: emit(offset, extent,
// replica). With `primary`, only those with replica_id 0.
template <class Emit>
void for_each_shard(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout,
                    const RankCoordinates& at, core::TensorRole role, bool primary, const Emit& emit) {
  int tp_size = layout.tensor_model_parallel_size, tp_rank = at.tp;
  int dp_size = layout.data_parallel_size, dp_rank = at.dp;
  if (spec.expert >= 0) {  // the expert grid: etp fastest, then ep, then the expert data-parallel ranks
    const int in_stage = at.dp * layout.tensor_model_parallel_size + at.tp;
    const int etp = layout.expert_tensor_parallel_size, ep = layout.expert_model_parallel_size;
    const int64_t experts_each = spec.num_experts / ep;
    if (spec.expert / experts_each != in_stage / etp % ep) return;
    tp_size = etp;
    tp_rank = in_stage % etp;
    dp_size = layout.expert_data_parallel_size();
    dp_rank = in_stage / (etp * ep);
  }
  // Replicas are numbered over tp if tensor parallelism does not shard the parameter, over dp if the role is not
  // sharded over dp; the tied embedding of the last stage comes after those of the first.
  const bool spread = is_spread(layout, role);
  const int tp_copy = spec.rule == TpRule::kReplicated ? tp_rank : 0;
  const int tp_copies = spec.rule == TpRule::kReplicated ? tp_size : 1;
  const int dp_copy = spread ? 0 : dp_rank;
  const int dp_copies = spread ? 1 : dp_size;
  const bool tied_copy = spec.is_tied_embedding && at.pp != 0;
  const int replica = tp_copy + tp_copies * (dp_copy + dp_copies * (tied_copy ? 1 : 0));
  if (primary && replica != 0) return;
  std::array<int64_t, kMaxAxes> local;
  const size_t axes = local_dims(spec, config, tp_size, local.data());
  int64_t numel = 1;
  for (size_t axis = 0; axis < axes; ++axis) numel *= local[axis];
  const FlatRange range = spread ? distributed_range(numel, dp_size, dp_rank) : FlatRange{0, numel};
  for_each_local_box(spec, config, tp_size, tp_rank, range.begin, range.end,
                     [&](const int64_t* offset, const int64_t* extent) { emit(offset, extent, replica); });
}

}  // namespace

core::Dims local_shape(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size) {
  core::Dims shape(spec.global_shape.size());
  local_dims(spec, config, tp_size, shape.data());
  return shape;
}

std::vector<Box> boxes_of_local_range(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size,
                                      int tp_rank, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  const size_t axes = spec.global_shape.size();
  for_each_local_box(spec, config, tp_size, tp_rank, begin, end, [&](const int64_t* offset, const int64_t* extent) {
    boxes.push_back({core::Dims(offset, offset + axes), core::Dims(extent, extent + axes)});
  });
  return boxes;
}

FlatRange distributed_range(int64_t numel, int dp_size, int dp_rank) {
  if (dp_size == 1) return {0, numel};
  const int64_t block = ((numel + dp_size - 1) / dp_size + 63) / 64 * 64;
  return {std::min(numel, block * dp_rank), std::min(numel, block * (dp_rank + 1))};
}

int virtual_pipeline_size(const core::TransformerConfig& config, int pp, int64_t layers_per_chunk) {
  if (layers_per_chunk == 0) return 1;
  // The product can overflow for hostile input: compute it only if it is at most num_layers.
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
  const int64_t place = int64_t{chunk} * stages + pp;
  if (!layout.num_layer_list.empty()) {
    const auto begin = layout.num_layer_list.begin();
    return {std::accumulate(begin, begin + place, int64_t{0}), begin[place]};
  }
  const int64_t count = config.num_layers / (int64_t{stages} * layout.virtual_pipeline_model_parallel_size);
  return {place * count, count};
}

bool stage_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int pp) {
  const int last = layout.pipeline_model_parallel_size - 1;
  if (spec.layer < 0) return pp == 0 || (spec.is_tied_embedding && pp == last);
  if (spec.layer >= config.num_layers) return pp == last;
  for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
    const LayerRange range = layers_of_chunk(config, layout, pp, chunk);
    if (spec.layer >= range.first && spec.layer < range.first + range.count) return true;
  }
  return false;
}

std::vector<core::ShardedTensor> shards_of_parameter(const ParameterSpec& spec, const core::TransformerConfig& config,
                                                     const ModelLayout& layout, int rank, const RoleSpec& role) {
  const RankCoordinates at = coordinates_of_rank(layout, rank);
  std::vector<core::ShardedTensor> shards;
  if (!stage_holds(spec, config, layout, at.pp)) return shards;
  const size_t axes = spec.global_shape.size();
  for_each_shard(spec, config, layout, at, role.role, false,
                 [&](const int64_t* offset, const int64_t* extent, int replica) {
                   shards.push_back({spec.key, role.role, role.dtype, spec.global_shape,
                                     core::Dims(offset, offset + axes), core::Dims(extent, extent + axes), replica});
                 });
  return shards;
}

std::vector<core::ShardedTensor> shards_of_rank(const ModelLayout& layout, const core::TransformerConfig& config,
                                                int rank, std::span<const RoleSpec> roles) {
  std::vector<core::ShardedTensor> shards;
  const auto specs = parameter_specs(config);
  for (const RoleSpec& role : roles) {
    for (const ParameterSpec& spec : specs) {
      if (!has_role(spec, role.role)) continue;
      for (auto& shard : shards_of_parameter(spec, config, layout, rank, role)) shards.push_back(std::move(shard));
    }
  }
  return shards;
}

ShardList shards_of_checkpoint(const ModelLayout& layout, const core::TransformerConfig& config,
                               std::span<const RoleSpec> roles) {
  validate_layout(layout, config);
  std::vector<core::TensorRole> names;
  for (const RoleSpec& role : roles) names.push_back(role.role);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const auto dtype_of = [&](size_t spec, core::TensorRole role) -> std::optional<core::DType> {
    if (!has_role(specs[spec], role)) return std::nullopt;
    return std::find_if(roles.begin(), roles.end(), [&](const RoleSpec& r) { return r.role == role; })->dtype;
  };
  return shards_of_checkpoint(layout, config, specs, names, dtype_of);
}

namespace {

// Throws unless all parts of the parameter have the same size; the vocabulary is padded instead.
void validate_cut(const ParameterSpec& spec, const ModelLayout& layout) {
  const auto refuse = [&](int64_t size, const char* what, int64_t parts) {
    if (size % parts == 0) return;
    throw Error(ErrorCode::kInvalidArgument, cat(spec.key, ": ", size, " ", what, " cannot be split ", parts,
                                                 " ways. Choose a parallel size that divides it."));
  };
  const int tp = spec.expert >= 0 ? layout.expert_tensor_parallel_size : layout.tensor_model_parallel_size;
  if (spec.expert >= 0) refuse(spec.num_experts, "experts", layout.expert_model_parallel_size);
  if (spec.rule == TpRule::kRows) refuse(spec.global_shape[0], "rows", tp);
  if (spec.rule == TpRule::kGatedRows) refuse(spec.global_shape[0], "rows of gate and up", int64_t{2} * tp);
  if (spec.rule == TpRule::kColumns) refuse(spec.global_shape[1], "columns", tp);
}

// The boxes of one rank, in order.
class RankBoxes {
 public:
  void clear() {
    boxes_.clear();
    dims_.clear();
  }
  void add(size_t spec, size_t axes, const int64_t* offset, const int64_t* extent) {
    boxes_.push_back({spec, axes});
    dims_.insert(dims_.end(), offset, offset + axes);
    dims_.insert(dims_.end(), extent, extent + axes);
  }
  template <class Emit>
  void for_each(const Emit& emit) const {
    const int64_t* dims = dims_.data();
    for (const auto& [spec, axes] : boxes_) {
      emit(spec, std::span(dims, axes), std::span(dims + axes, axes));
      dims += 2 * axes;
    }
  }

 private:
  std::vector<std::pair<size_t, size_t>> boxes_;  // index of the spec, axes
  std::vector<int64_t> dims_;                     // offset and extent of each box
};

}  // namespace

ShardList shards_of_checkpoint(
    const ModelLayout& layout, const core::TransformerConfig& config, std::span<const ParameterSpec> specs,
    std::span<const core::TensorRole> roles,
    const std::function<std::optional<core::DType>(size_t spec, core::TensorRole)>& dtype_of) {
  validate_layer_map(layout, config.num_layers);
  ShardList list;
  std::vector<int32_t> tensors(specs.size() * roles.size(), -1);  // per parameter and role
  for (size_t s = 0; s < specs.size(); ++s) {
    validate_cut(specs[s], layout);
    for (size_t r = 0; r < roles.size(); ++r) {
      if (const auto dtype = dtype_of(s, roles[r])) {
        tensors[s * roles.size() + r] = list.shards.add_tensor(specs[s].key, roles[r], *dtype, specs[s].global_shape);
      }
    }
  }
  const int tp = layout.tensor_model_parallel_size, dp = layout.data_parallel_size;
  // Upper bound on the number of boxes; untouched memory costs nothing.
  size_t boxes = 0;
  for (const ParameterSpec& spec : specs) {
    const size_t ranks = spec.rule == TpRule::kReplicated ? 1 : static_cast<size_t>(tp);
    const size_t pieces = layout.zero_stage > 0 ? 3 * static_cast<size_t>(dp) : 1;
    boxes += ranks * pieces * (spec.rule == TpRule::kGatedRows ? 2 : 1) * roles.size();
  }
  list.shards.reserve(boxes);
  std::vector<size_t> held;
  std::array<RankBoxes, 2> here;  // replicated over the data-parallel ranks, sharded over them
  for (int stage = 0; stage < layout.pipeline_model_parallel_size; ++stage) {
    held.clear();
    for (size_t s = 0; s < specs.size(); ++s) {
      if (stage_holds(specs[s], config, layout, stage)) held.push_back(s);
    }
    for (int in_stage = 0; in_stage < tp * dp; ++in_stage) {
      const RankCoordinates at{in_stage % tp, in_stage / tp, stage};
      const int rank = rank_of_coordinates(layout, at);
      // Roles that are sharded in the same way have the same boxes.
      std::array<bool, 2> listed{};
      for (size_t r = 0; r < roles.size(); ++r) {
        const bool spread = is_spread(layout, roles[r]);
        RankBoxes& boxes_here = here[spread ? 1 : 0];
        if (!std::exchange(listed[spread ? 1 : 0], true)) {
          boxes_here.clear();
          for (const size_t s : held) {
            for_each_shard(specs[s], config, layout, at, roles[r], true,
                           [&](const int64_t* offset, const int64_t* extent, int) {
                             boxes_here.add(s, specs[s].global_shape.size(), offset, extent);
                           });
          }
        }
        boxes_here.for_each([&](size_t s, std::span<const int64_t> offset, std::span<const int64_t> extent) {
          const int32_t tensor = tensors[s * roles.size() + r];
          if (tensor < 0) return;
          list.shards.add_shard(tensor, offset, extent);
          list.ranks.push_back(rank);
        });
      }
    }
  }
  return list;
}

}  // namespace ms::ckpt
