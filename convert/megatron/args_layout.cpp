#include "convert/megatron/args_layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Layers of each chunk; empty if all chunks have the same number.
std::vector<int64_t> layers_of_chunks(const MegatronArgs& args, int64_t num_layers, int pp, int vpp) {
  if (args.is_set("pipeline_model_parallel_layout")) {
    throw Error(ErrorCode::kUnsupported,
                cat(args.where(), ": args.pipeline_model_parallel_layout is set: such stages are not supported here"));
  }
  const int64_t first = args.integer("decoder_first_pipeline_num_layers").value_or(0),
                last = args.integer("decoder_last_pipeline_num_layers").value_or(0);
  const int64_t embedding = args.flag("account_for_embedding_in_pipeline_split") ? 1 : 0,
                loss = args.flag("account_for_loss_in_pipeline_split") ? 1 : 0;
  std::vector<int64_t> list;
  if (first > 0 || last > 0) {
    for (int chunk = 0; chunk < vpp; ++chunk) {
      if (num_layers % vpp != 0 || first % vpp != 0 || last % vpp != 0 || pp > num_layers / vpp) break;
      const auto of_chunk = layout::uneven_layer_list(num_layers / vpp, pp, first / vpp, last / vpp);
      list.insert(list.end(), of_chunk.begin(), of_chunk.end());
    }
  } else if (embedding + loss > 0) {
    const int64_t chunks = int64_t{pp} * vpp, slots = num_layers + embedding + loss;
    if (slots % chunks == 0) {
      list.assign(static_cast<size_t>(chunks), slots / chunks);
      list.front() -= embedding;
      list.back() -= loss;
    }
  } else {
    return {};
  }
  if (std::accumulate(list.begin(), list.end(), int64_t{0}) != num_layers) {
    throw Error(ErrorCode::kCorruptData, cat(args.where(), ": args: ", num_layers, " layers do not fill ", pp,
                                             " stages of ", vpp, " chunks as args describe"));
  }
  return list;
}

}  // namespace

MegatronModel megatron_model_of_args(const MegatronArgs& args, const core::TransformerConfig& config,
                                     int64_t padded_rows, MegatronNaming naming) {
  MegatronModel model;
  model.config = config;
  model.padded = config;
  const int tp = args.size("tensor_model_parallel_size"), ep = args.size("expert_model_parallel_size");
  const int etp = args.is_set("expert_tensor_parallel_size") ? args.size("expert_tensor_parallel_size") : tp;
  model.padded.make_vocab_size_divisible_by = std::max<int64_t>(1, padded_rows / tp);
  model.layout.tensor_model_parallel_size = tp;
  model.layout.pipeline_model_parallel_size = args.size("pipeline_model_parallel_size");
  model.layout.virtual_pipeline_model_parallel_size = args.size("virtual_pipeline_model_parallel_size");
  model.experts = {tp, ep, etp, args.flag("moe_tp_extend_ep")};
  if (tp % etp != 0) {
    throw Error(ErrorCode::kUnsupported, cat(args.where(), ": args.expert_tensor_parallel_size ", etp,
                                             " does not divide args.tensor_model_parallel_size ", tp));
  }
  if (config.has_experts()) {
    model.layout.expert_model_parallel_size = model.experts.blocks();
    model.layout.expert_tensor_parallel_size = model.experts.cuts();
    const int64_t ranks = int64_t{model.experts.blocks()} * model.experts.cuts();
    model.layout.data_parallel_size = static_cast<int>(std::min<int64_t>(1 << 20, std::lcm(int64_t{tp}, ranks) / tp));
  }
  try {
    model.layout.num_layer_list = layers_of_chunks(args, config.num_layers, model.layout.pipeline_model_parallel_size,
                                                   model.layout.virtual_pipeline_model_parallel_size);
    layout::validate_layout(model.layout, config);
    model.layers = MegatronLayerMap(config.num_layers, model.layout, {});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(ErrorCode::kCorruptData, cat(args.where(), ": args: ", error.what()));
  }
  model.specs = layout::parameter_specs(config);
  for (layout::ParameterSpec& spec : model.specs) {
    const bool is_cut = naming == MegatronNaming::kLocal && is_latent_down_projection(spec.key);
    if (is_cut && spec.global_shape[0] % tp == 0) spec.rule = layout::TpRule::kRows;
  }
  return model;
}

}  // namespace ms::convert
