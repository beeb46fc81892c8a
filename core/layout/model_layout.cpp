#include "core/layout/model_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::layout {

using core::cat;
using core::Error;
using core::ErrorCode;

nlohmann::json layout_to_json(const ModelLayout& layout) {
  nlohmann::json json = {{"tp", layout.tensor_model_parallel_size},
                         {"pp", layout.pipeline_model_parallel_size},
                         {"vpp", layout.virtual_pipeline_model_parallel_size},
                         {"ep", layout.expert_model_parallel_size},
                         {"etp", layout.expert_tensor_parallel_size},
                         {"cp", layout.context_parallel_size},
                         {"dp", layout.data_parallel_size / layout.context_parallel_size},
                         {"order", order_name(layout.order)},
                         {"zero", layout.zero_stage},
                         {"layer_map", "even"}};
  if (layout.num_distributed_optimizer_instances > 1) json["instances"] = layout.num_distributed_optimizer_instances;
  if (!layout.num_layer_list.empty()) json["layer_map"] = layout.num_layer_list;
  if (layout.layer_order == Placement::Order::kV) json["layer_map"] = {{"v", json["layer_map"]}};
  return json;
}

namespace {

// The layer_map of a layout: "even", a list, or in a V {"v": one of both}.
void read_layer_map(const nlohmann::json& map, ModelLayout& layout) {
  if (map.is_string() && map.get_ref<const std::string&>() == "even") return;
  if (map.is_object() && map.size() == 1 && map.contains("v") && layout.layer_order != Placement::Order::kV) {
    layout.layer_order = Placement::Order::kV;
    return read_layer_map(map["v"], layout);
  }
  if (!map.is_array() || map.empty()) {
    throw Error(ErrorCode::kUnsupported, cat("layout: layer_map ", map.dump().substr(0, 80),
                                             ": only \"even\", lists, and in a V {\"v\": ..} are supported"));
  }
  for (const auto& layers : map) {
    if (!layers.is_number_integer() || layers < 0 || layers > 1 << 24) {
      throw Error(ErrorCode::kCorruptData, cat("layout: layer_map holds ", layers.dump().substr(0, 40)));
    }
    layout.num_layer_list.push_back(layers.get<int64_t>());
  }
}

}  // namespace

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
  const int cp = size("cp", 1, 1);
  if (int64_t{cp} * size("dp", 1, 1) > 1 << 24)
    throw Error(ErrorCode::kCorruptData, cat("layout: cp ", cp, " x dp ", size("dp", 1, 1), " ranks"));
  std::optional<AxisOrder> order = kTpCpEpDpPp;
  if (const auto found = json.find("order"); found != json.end()) {
    order = found->is_string() ? parse_order(found->get<std::string>()) : std::nullopt;
    if (!order) {
      throw Error(ErrorCode::kUnsupported,
                  cat("layout: order ", found->dump().substr(0, 80), ": expected the axes tp, ",
                      "cp, ep, dp and pp, as in \"", order_name(kTpCpEpDpPp), "\""));
    }
  }
  ModelLayout layout = {.tensor_model_parallel_size = size("tp", 1, 1),
                        .pipeline_model_parallel_size = size("pp", 1, 1),
                        .data_parallel_size = size("dp", 1, 1) * cp,
                        .zero_stage = size("zero", 0, 0),
                        .virtual_pipeline_model_parallel_size = size("vpp", 1, 1),
                        .expert_model_parallel_size = size("ep", 1, 1),
                        .expert_tensor_parallel_size = size("etp", 1, 1),
                        .num_distributed_optimizer_instances = size("instances", 1, 1)};
  layout.order = *order;
  layout.context_parallel_size = cp;
  if (layout.zero_stage > 3) {
    throw Error(ErrorCode::kCorruptData, cat("layout: zero ", layout.zero_stage, ": stages are 0 to 3"));
  }
  if (const auto map = json.find("layer_map"); map != json.end()) read_layer_map(*map, layout);
  return layout;
}

void validate_layer_map(const ModelLayout& layout, int64_t num_layers) {
  const int tp = layout.tensor_model_parallel_size, pp = layout.pipeline_model_parallel_size;
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  if (tp < 1) refuse(layout.size_flags.tensor, " ", tp, ": give a positive number");
  if (pp < 1) refuse(layout.size_flags.pipeline, " ", pp, ": give a positive number");
  const int vpp = layout.virtual_pipeline_model_parallel_size;
  if (vpp < 1) refuse(vpp, " virtual pipeline stages on each rank: give a positive number");
  if (vpp > 1 && pp < 2) refuse(vpp, " virtual pipeline stages need ", layout.size_flags.pipeline, " above 1");
  if (layout.layer_order == Placement::Order::kV && (pp < 2 || vpp != 2)) {
    refuse("chunks in a V: ", pp, " stages of ", vpp, " chunks, expected 2 chunks and ", layout.size_flags.pipeline,
           " above 1");
  }
  if (layout.data_parallel_size < 1) refuse("data-parallel size ", layout.data_parallel_size, ": give a positive one");
  if (layout.context_parallel_size < 1 || layout.data_parallel_size % layout.context_parallel_size != 0) {
    refuse(layout.data_parallel_size, " ranks of the same weights: not a multiple of --context-parallel-size ",
           layout.context_parallel_size);
  }
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
      refuse(layout.size_flags.layers, " has ", list.size(), " entries, expected ", int64_t{pp} * vpp,
             ": one for each (virtual) pipeline stage");
    }
    int64_t sum = 0;
    for (const int64_t layers : list) {  // before what is too much: that may be there to make up for it
      if (layers < 0) refuse(layout.size_flags.layers, ": ", layers, " layers in a stage: at least 0");
    }
    for (const int64_t layers : list) {
      if (layers > num_layers)
        refuse(layout.size_flags.layers, ": ", layers, " layers in a stage, but the model has ", num_layers);
      sum += layers;
    }
    if (sum != num_layers)
      refuse(layout.size_flags.layers, " adds up to ", sum, " layers, but the model has ", num_layers);
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

int query_parts(const core::TransformerConfig& config, int tp) {
  const int64_t groups = config.query_groups();
  return config.multi_latent_attention || groups < 1 || tp % groups != 0 ? 1 : static_cast<int>(tp / groups);
}

std::vector<int64_t> uneven_layer_list(int64_t num_layers, int pp, int64_t first, int64_t last) {
  const int given = (first > 0) + (last > 0);
  const int64_t middle = num_layers - first - last;
  if (pp < 1 || first < 0 || last < 0 || first > num_layers || last > num_layers || middle < 0 || given > pp ||
      (given == pp ? middle != 0 : middle % (pp - given) != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(first > 0 ? cat("--decoder-first-pipeline-num-layers ", first) : "", given > 1 ? " and " : "",
                    last > 0 ? cat("--decoder-last-pipeline-num-layers ", last) : "", ": the other ", middle, " of ",
                    num_layers, " layers cannot be split evenly over the other stages of ", pp));
  }
  std::vector<int64_t> list;
  for (int stage = 0; stage < pp; ++stage) {
    const bool is_first = stage == 0 && first > 0, is_last = stage == pp - 1 && last > 0;
    list.push_back(is_first ? first : is_last ? last : middle / (pp - given));
  }
  return list;
}

std::vector<int64_t> nearly_even_list(int64_t num_layers, int pp) {
  std::vector<int64_t> list(static_cast<size_t>(pp), num_layers / pp);
  for (int64_t stage = 0; stage < num_layers % pp; ++stage) ++list[static_cast<size_t>(stage)];
  return list;
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

Placement placement_of(const core::TransformerConfig& config, const ModelLayout& layout) {
  const int stages = layout.pipeline_model_parallel_size, chunks = layout.virtual_pipeline_model_parallel_size;
  if (layout.num_layer_list.empty()) return Placement::even(stages, chunks, config.num_layers, layout.layer_order);
  return {stages, chunks, layout.layer_order, layout.num_layer_list};
}

LayerRange layers_of_chunk(const core::TransformerConfig& config, const ModelLayout& layout, int pp, int chunk) {
  const int stages = layout.pipeline_model_parallel_size;
  const bool runs_backwards = layout.layer_order == Placement::Order::kV && chunk % 2 == 1;
  const int64_t place = int64_t{chunk} * stages + (runs_backwards ? stages - 1 - pp : pp);
  if (!layout.num_layer_list.empty()) {
    const auto begin = layout.num_layer_list.begin();
    return {std::accumulate(begin, begin + place, int64_t{0}), begin[place]};
  }
  const int64_t count = config.num_layers / (int64_t{stages} * layout.virtual_pipeline_model_parallel_size);
  return {place * count, count};
}

int stage_of_loss(const ModelLayout& layout) {
  return layout.layer_order == Placement::Order::kV ? 0 : layout.pipeline_model_parallel_size - 1;
}

bool has_embedding_copy(const core::TransformerConfig& config, const ModelLayout& layout) {
  return (!config.untie_embeddings_and_output_weights || config.mtp_num_layers > 0) && stage_of_loss(layout) != 0;
}

bool stage_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int pp) {
  const int last = stage_of_loss(layout);
  if (spec.layer < 0) return pp == 0 || (spec.has_copy_behind && pp == last);
  if (spec.layer >= config.num_layers) return pp == last;
  for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
    const LayerRange range = layers_of_chunk(config, layout, pp, chunk);
    if (spec.layer >= range.first && spec.layer < range.first + range.count) return true;
  }
  return false;
}

bool rank_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int rank) {
  const RankGrid grid = layout.grid();
  if (!stage_holds(spec, config, layout, grid.coordinates(rank).pp)) return false;
  return spec.expert < 0 || spec.expert / (spec.num_experts / grid.ep) == grid.expert_coordinates(rank).ep;
}

TensorCut cut_of(const ParameterSpec& spec, const RankGrid& grid, int rank) {
  if (spec.expert >= 0) return {grid.etp, grid.expert_coordinates(rank).etp};
  return {grid.tp, grid.coordinates(rank).tp};
}

}  // namespace ms::layout
