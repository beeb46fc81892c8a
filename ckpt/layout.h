// The layout algebra: which boxes of which global tensors a rank holds, for given parallel sizes. Used by the trainer,
// by msckpt reshard and by convert, so that there is one set of rules.
//
// Ranks are ordered tp fastest, then dp, then pp (Megatron's tp-cp-ep-dp-pp with cp = 1), or pp before dp. Within a
// stage the expert grid has its own order: etp fastest, then ep, then the expert data-parallel ranks. Layers are split,
// evenly or by a list, into pp x vpp chunks that are assigned to the stages in turn: with virtual stages, stage s holds
// chunks s, s + pp, .. (megatron/core/transformer/transformer_layer.py, get_transformer_layer_offset). The first stage
// holds the embedding; the last one holds final norm and output layer, or with tied embeddings a replica of the word
// embeddings. Sources: megatron/core/parallel_state.py, tensor_parallel/layers.py; boxes of the gated MLP as in
// megatron/core/transformer/mlp.py (sharded_state_dict).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/box.h"
#include "ckpt/rank_runs.h"
#include "ckpt/shard_table.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::ckpt {

// Names of the flags that set the sizes of a layout, for error messages. Not part of the layout: two layouts of the
// same sizes are equal.
struct SizeFlags {
  const char* tensor = "--tensor-model-parallel-size";
  const char* pipeline = "--pipeline-model-parallel-size";
  const char* expert = "--expert-model-parallel-size";
  friend bool operator==(const SizeFlags&, const SizeFlags&) { return true; }
};
inline constexpr SizeFlags kTargetSizeFlags = {"--target-tensor-parallel-size", "--target-pipeline-parallel-size",
                                               "--target-expert-parallel-size"};  // msckpt's

struct ModelLayout {
  int tensor_model_parallel_size = 1;
  int pipeline_model_parallel_size = 1;
  int data_parallel_size = 1;                    // with context parallelism: dp x cp, which shares the optimizer state
  int zero_stage = 0;                            // 1, 2: master and moments are sharded over dp; 3: parameters too
  int virtual_pipeline_model_parallel_size = 1;  // chunks of layers per stage
  int expert_model_parallel_size = 1;            // ranks that the experts are distributed over, in equal blocks
  int expert_tensor_parallel_size = 1;           // ranks that share each expert
  // Layers of each chunk; chunk k is on stage k % pp. Length pp x vpp; empty: even split.
  std::vector<int64_t> num_layer_list;
  bool pp_before_dp = false;  // order of the ranks: tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping)
  SizeFlags size_flags;

  int world_size() const { return tensor_model_parallel_size * pipeline_model_parallel_size * data_parallel_size; }
  int expert_data_parallel_size() const {
    return tensor_model_parallel_size * data_parallel_size / (expert_model_parallel_size * expert_tensor_parallel_size);
  }
  bool operator==(const ModelLayout&) const = default;
};

// {"tp":2,"pp":1,"vpp":1,"ep":1,"etp":1,"cp":1,"dp":1,"order":"tp-cp-ep-dp-pp","zero":0,"layer_map":"even"}; an uneven
// layer_map is the num_layer_list; the other order is "tp-cp-ep-pp-dp".
nlohmann::json layout_to_json(const ModelLayout& layout);
// Throws kCorruptData for invalid JSON members, kUnsupported for what this version does not support (cp above 1,
// another order).
ModelLayout layout_from_json(const nlohmann::json& json);

struct RankCoordinates {
  int tp = 0, dp = 0, pp = 0;
};
RankCoordinates coordinates_of_rank(const ModelLayout& layout, int rank);
int rank_of_coordinates(const ModelLayout& layout, const RankCoordinates& at);

// How tensor parallelism cuts a parameter.
enum class TpRule : uint8_t {
  kReplicated,  // norms, positions, biases of row-parallel layers
  kRows,        // axis 0: linear_qkv (packed per group), biases of column-parallel layers
  kColumns,     // axis 1: linear_proj, linear_fc2
  kGatedRows,   // [gate; up]: the same rows of each half, hence two boxes: linear_fc1, its bias
  kVocabRows,   // axis 0 of the padded vocabulary; only the true rows are stored
};

struct ParameterSpec {
  std::string key;
  core::Dims global_shape;  // with the true vocabulary
  TpRule rule = TpRule::kReplicated;
  bool is_tied_embedding = false;  // the last stage also holds it, as a replica
  bool is_buffer = false;          // not trained: role kBuffer only (a router's expert_bias)
  int64_t layer = 0;               // global layer index; -1: before the layers, num_layers: after them
  int64_t expert = -1;             // global expert index of an expert's parameter
  int64_t num_experts = 0;         // of its layer
};

inline bool has_role(const ParameterSpec& spec, core::TensorRole role) {
  return spec.is_buffer == (role == core::TensorRole::kBuffer);
}

// Every parameter of the model, in model order: embedding, layers, final norm, output layer, multi-token prediction
// (mtp.layers.K, on the last stage).
// Names are Megatron core's with Transformer Engine (norm weights fused into the linear layer that follows them); norms
// after attention and MLP are post_self_attn_layernorm and post_mlp_layernorm. Experts are numbered over the whole
// layer: mlp.experts.local_experts.E.linear_fc1.weight, each a tensor of its own. config must be resolved.
std::vector<ParameterSpec> parameter_specs(const core::TransformerConfig& config);

// The spec derived from the name, for parameters that the checkpoint's model does not mention: those of experts, latent
// attention and multi-token prediction. num_experts stays 0. nullopt for an unknown name.
std::optional<ParameterSpec> parameter_spec_of(const std::string& key, std::span<const int64_t> global_shape,
                                               const core::TransformerConfig& config);

// Spec of a tensor that is not part of the model, kept under its own name: unsharded on the first stage, a buffer.
ParameterSpec passthrough_spec(std::string key, std::span<const int64_t> global_shape);

// Throws kInvalidArgument, naming the flags, if the model cannot be sharded in this layout.
void validate_layout(const ModelLayout& layout, const core::TransformerConfig& config);
// The part of validate_layout that does not depend on the model's matrices: sizes, and the assignment of layers.
void validate_layer_map(const ModelLayout& layout, int64_t num_layers);

// Layers of each of `pp` stages: `first` and `last` if given (Megatron's --decoder-first-pipeline-num-layers and
// --decoder-last-pipeline-num-layers; 0: not given), the rest evenly. Throws kInvalidArgument if the rest cannot be
// split evenly.
std::vector<int64_t> uneven_layer_list(int64_t num_layers, int pp, int64_t first, int64_t last);

// Chunks per stage if a chunk has `layers_per_chunk` layers; 1 if that is 0. Throws kInvalidArgument, naming
// --num-layers-per-virtual-pipeline-stage, if the layers cannot be split like this.
int virtual_pipeline_size(const core::TransformerConfig& config, int pp, int64_t layers_per_chunk);

// The global layers of chunk `chunk` of stage `pp`: [first, first + count).
struct LayerRange {
  int64_t first = 0, count = 0;
};
LayerRange layers_of_chunk(const core::TransformerConfig& config, const ModelLayout& layout, int pp, int chunk);

// Shape of the parameter in the memory of a tensor-parallel rank: vocabulary rows include the padding, gated rows are
// the gate part followed by the up part.
core::Dims local_shape(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size);

// The boxes of the global tensor that correspond to the elements [begin, end) of the flat local tensor (local_shape,
// row-major), in local order and without gaps: each box is dense in local memory and starts where the previous one
// ended, the first at `begin`. Vocabulary padding belongs to no box; it is always at the end.
std::vector<Box> boxes_of_local_range(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size,
                                      int tp_rank, int64_t begin, int64_t end);

// The part of a flat local tensor of numel elements for which dp_rank keeps state, from ZeRO stage 1 on: equal blocks,
// rounded up to 64 elements; the last ranks may hold less or nothing.
struct FlatRange {
  int64_t begin = 0, end = 0;
};
FlatRange distributed_range(int64_t numel, int dp_size, int dp_rank);

struct RoleSpec {
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
};

// True if the rank's pipeline stage holds the parameter (for a tied embedding: also the last stage).
bool stage_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int pp);

// The shards of one parameter and role that `rank` holds, in local order as in boxes_of_local_range; empty if it holds
// none. From ZeRO stage 1 on kMaster, kExpAvg and kExpAvgSq are sharded to the rank's distributed_range, in stage 3 all
// roles but kBuffer.
// replica_id is 0 on exactly one of the ranks that hold an element.
std::vector<core::ShardedTensor> shards_of_parameter(const ParameterSpec& spec, const core::TransformerConfig& config,
                                                     const ModelLayout& layout, int rank, const RoleSpec& role);

// All shards of a rank: role by role, parameter by parameter.
std::vector<core::ShardedTensor> shards_of_rank(const ModelLayout& layout, const core::TransformerConfig& config,
                                                int rank, std::span<const RoleSpec> roles);

// The shards that a complete checkpoint of this layout contains: those with replica_id 0 of all ranks, rank by rank
// (with pp_before_dp, stage by stage).
struct ShardList {
  ShardTable shards;
  RankRuns ranks;  // same length: which rank's file holds the shard
};
ShardList shards_of_checkpoint(const ModelLayout& layout, const core::TransformerConfig& config,
                               std::span<const RoleSpec> roles);

// The same for any list of parameters. `dtype_of` returns the dtype of a parameter (index into specs) and role, or
// nullopt if it is not in the checkpoint. Within a rank ordered by role, then by specs. Throws as validate_layer_map,
// and kInvalidArgument if a matrix cannot be split.
ShardList shards_of_checkpoint(
    const ModelLayout& layout, const core::TransformerConfig& config, std::span<const ParameterSpec> specs,
    std::span<const core::TensorRole> roles,
    const std::function<std::optional<core::DType>(size_t spec, core::TensorRole)>& dtype_of);

}  // namespace ms::ckpt
