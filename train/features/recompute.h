// Activations that are dropped in forward and computed again in backward.
// Source: arXiv 2205.05198; megatron/core/transformer/transformer_block.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

struct RecomputeConfig {
  std::string recompute_granularity;
  std::vector<std::string> recompute_modules;
  std::string recompute_method;
  int64_t recompute_num_layers = 0;
  bool enable_recompute_layers_per_pp_rank = false;
  std::vector<int64_t> recompute_module_list;
  int64_t recompute_type = 2;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RecomputeConfig;
    field("recompute_granularity", &C::recompute_granularity,
          "Save activation memory by computing activations again in backward. full: whole layers (with "
          "--recompute-method); selective: the parts in --recompute-modules");
    field("recompute_modules", &C::recompute_modules,
          "With --recompute-granularity selective: mlp (everything between an MLP's input and result), moe (the same "
          "of a layer with experts, routing and exchange included), moe_act (the activation of experts), "
          "shared_experts, layernorm (as --recompute-norm), mla_up_proj (as --recompute-mla-up-proj), core_attn (the "
          "default; no effect: attention keeps no probabilities)");
    field("recompute_method", &C::recompute_method,
          "With --recompute-granularity full: block (the first --recompute-num-layers layers of a stage) or "
          "uniform (all layers, in groups of which only the input is kept)");
    field("recompute_num_layers", &C::recompute_num_layers,
          "Layers to recompute (block), or layers per group (uniform); with --swap-attention and no "
          "--recompute-granularity full, layers of which the MLP is recomputed");
    field("enable_recompute_layers_per_pp_rank", &C::enable_recompute_layers_per_pp_rank,
          "Interleaved schedule: --recompute-num-layers, --recompute-norm-num-layers and "
          "--recompute-activation-function-num-layers count the layers of a stage, its chunks in turn; off: of each "
          "chunk");
    field(
        "recompute_module_list", &C::recompute_module_list,
        "Layers to recompute of each pipeline stage, its first ones, such as 3,1,0,0: earlier stages of 1F1B keep more "
        "micro-batches. --automated-pipeline chooses it. Default: what --recompute-granularity says, on every stage");
    field("recompute_type", &C::recompute_type,
          "With --recompute-module-list: what is recomputed of each of these layers: 2, all of it; 0, its MLP");
  }
};

// For a number of layers above those of every stage (or chunk, which such numbers are of by default) that `flag` gives:
// "--recompute-num-layers 40: no stage has more than 2 layers: taken as 2, .."; else nothing. Of a valid configuration.
std::vector<std::string> notice_of_layers(const TrainerConfig& config, const char* flag, int64_t layers);

Feature recompute_feature();

}  // namespace ms::train
