// A parallel layout of a model: its sizes, the coordinates of its ranks, and the layers of each stage. One set of rules
// for the trainer, msckpt reshard and convert.
//
// Ranks are ordered tp fastest, then cp, dp and pp (Megatron's tp-cp-ep-dp-pp), or in another order of the axes;
// experts have a grid of their own over the ranks of a stage (rank_grid.h). Layers are split, evenly or by a list, into
// pp x vpp chunks that are assigned to the stages in turn: with virtual stages, stage s holds chunks s, s + pp, ..
// (megatron/core/transformer/transformer_layer.py, get_transformer_layer_offset). The first stage holds the embedding;
// the last one holds final norm and output layer, or with tied embeddings a replica of the word embeddings. Schedules
// in a V (schedule.h) have two chunks a stage, s and 2 pp - 1 - s: both ends of the model are on the first stage.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/layout/parameter_specs.h"
#include "core/layout/placement.h"
#include "core/layout/rank_grid.h"
#include "core/layout/sharding.h"
#include "core/transformer_config.h"

namespace ms::layout {

// Names of the flags that set the sizes of a layout, for error messages. Not part of the layout: two layouts of the
// same sizes are equal.
struct SizeFlags {
  const char* tensor = "--tensor-model-parallel-size";
  const char* pipeline = "--pipeline-model-parallel-size";
  const char* expert = "--expert-model-parallel-size";
  const char* layers = "--num-layer-list";
  friend bool operator==(const SizeFlags&, const SizeFlags&) { return true; }
};
inline constexpr SizeFlags kTargetSizeFlags = {"--target-tensor-parallel-size", "--target-pipeline-parallel-size",
                                               "--target-expert-parallel-size"};  // msckpt's

struct ModelLayout {
  int tensor_model_parallel_size = 1;
  int pipeline_model_parallel_size = 1;
  int data_parallel_size = 1;  // with context parallelism: dp x cp, which shares the optimizer state
  int zero_stage = 0;          // Sharding; in checkpoints 1 and 2 shard master and moments, 3 parameters too
  int virtual_pipeline_model_parallel_size = 1;  // chunks of layers per stage
  int expert_model_parallel_size = 1;            // ranks that the experts are distributed over, in equal blocks
  int expert_tensor_parallel_size = 1;           // ranks that share each expert
  int num_distributed_optimizer_instances = 1;   // of the data-parallel ranks: Sharding::num_instances
  // Layers of each chunk, maybe none, in the order in which a token passes them. Length pp x vpp; empty: even split.
  std::vector<int64_t> num_layer_list;
  Placement::Order layer_order = Placement::Order::kRoundRobin;  // chunk k is on stage k % pp, or in a V
  AxisOrder order = kTpCpEpDpPp;
  int context_parallel_size = 1;  // cp, of data_parallel_size
  SizeFlags size_flags;
  bool state_over_instances = false;  // Sharding's; neither is in JSON: a checkpoint lists what each rank has
  int64_t least_divided_elems = 0;

  Sharding sharding() const {
    return {zero_stage, data_parallel_size, num_distributed_optimizer_instances, state_over_instances,
            least_divided_elems};
  }
  int world_size() const { return tensor_model_parallel_size * pipeline_model_parallel_size * data_parallel_size; }
  // That together have all experts of a layer.
  int ranks_of_experts() const { return expert_model_parallel_size * expert_tensor_parallel_size; }
  RankGrid grid() const {
    return {.tp = tensor_model_parallel_size,
            .cp = context_parallel_size,
            .dp = data_parallel_size / context_parallel_size,
            .pp = pipeline_model_parallel_size,
            .order = order,
            .dp_replica = num_distributed_optimizer_instances,
            .etp = expert_tensor_parallel_size,
            .ep = expert_model_parallel_size};
  }
  bool operator==(const ModelLayout&) const = default;
};

// {"tp":2,"pp":1,"vpp":1,"ep":1,"etp":1,"cp":1,"dp":1,"order":"tp-cp-ep-dp-pp","zero":0,"layer_map":"even"}; an uneven
// layer_map is the num_layer_list; in a V it is {"v":"even"} or {"v":[..]}; "order" is any of the axes tp, cp, ep, dp,
// pp. "instances" is there where it is not 1.
nlohmann::json layout_to_json(const ModelLayout& layout);
// Throws kCorruptData for invalid JSON members, kUnsupported for what this version does not support (an order of other
// axes). "dp" does not count the ranks of "cp", as data_parallel_size does.
ModelLayout layout_from_json(const nlohmann::json& json);

// Throws kInvalidArgument, naming the flags, if the model cannot be sharded in this layout.
void validate_layout(const ModelLayout& layout, const core::TransformerConfig& config);
// The part of validate_layout that does not depend on the model's matrices: sizes, and the assignment of layers.
void validate_layer_map(const ModelLayout& layout, int64_t num_layers);

// How many tensor-parallel ranks share a query group: each of `tp` ranks has whole groups, or a part of one.
int query_parts(const core::TransformerConfig& config, int tp);

// Layers of each of `pp` stages: `first` and `last` if given (Megatron's --decoder-first-pipeline-num-layers and
// --decoder-last-pipeline-num-layers; 0: not given), the rest evenly. Throws kInvalidArgument if the rest cannot be
// split evenly.
std::vector<int64_t> uneven_layer_list(int64_t num_layers, int pp, int64_t first, int64_t last);

// Layers of each of `pp` stages, of which the first ones have one more where the others cannot be equal.
std::vector<int64_t> nearly_even_list(int64_t num_layers, int pp);

// Chunks per stage if a chunk has `layers_per_chunk` layers; 1 if that is 0. Throws kInvalidArgument, naming
// --num-layers-per-virtual-pipeline-stage, if the layers cannot be split like this.
int virtual_pipeline_size(const core::TransformerConfig& config, int pp, int64_t layers_per_chunk);

// The stages and chunks of the layout with their layers. For a valid layout.
Placement placement_of(const core::TransformerConfig& config, const ModelLayout& layout);
// The global layers of chunk `chunk` of stage `pp`.
LayerRange layers_of_chunk(const core::TransformerConfig& config, const ModelLayout& layout, int pp, int chunk);

// The stage that has final norm, output layer and loss; the embedding is on stage 0.
int stage_of_loss(const ModelLayout& layout);
// Whether the word embeddings, tied or read by multi-token prediction, are held by two stages, which add up their
// gradients (process_group_table.h, kEmbedding).
bool has_embedding_copy(const core::TransformerConfig& config, const ModelLayout& layout);

// True if the rank's pipeline stage holds the parameter (ParameterSpec::has_copy_behind: also that of the loss).
bool stage_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int pp);
// True if the rank does: its stage, and of an expert's parameter the rank has that expert.
bool rank_holds(const ParameterSpec& spec, const core::TransformerConfig& config, const ModelLayout& layout, int rank);

// Over how many ranks a parameter is cut, and which part of it a rank has: over tp, an expert's over etp.
struct TensorCut {
  int size = 1, rank = 0;
};
TensorCut cut_of(const ParameterSpec& spec, const RankGrid& grid, int rank);

}  // namespace ms::layout
