// Stages with different numbers of layers. Sources: Megatron's --pipeline-model-parallel-layout,
// --decoder-first-pipeline-num-layers, --account-for-embedding-in-pipeline-split and --standalone-embedding-stage
// (megatron/core/transformer/transformer_block.py, get_num_layers_to_build), MindSpeed's --num-layer-list and
// --noop-layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

struct StageLayersConfig {
  std::vector<int64_t> num_layer_list;
  std::vector<int64_t> noop_layers;
  std::string pipeline_model_parallel_layout;
  std::optional<int64_t> decoder_first_pipeline_num_layers;
  std::optional<int64_t> decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  bool standalone_embedding_stage = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = StageLayersConfig;
    field("num_layer_list", &C::num_layer_list,
          "Layers of each pipeline stage, such as 3,5,5,3; with virtual stages of each chunk, in the order in which a "
          "token passes them. Default: the same number on each");
    field(
        "noop_layers", &C::noop_layers,
        "Places without a layer, such as 0,31: --num-layers counts them, from 0, and is shared evenly, so that stages "
        "with the embedding or the loss have less to do");
    field("pipeline_model_parallel_layout", &C::pipeline_model_parallel_layout,
          "Layers of each (virtual) stage as Megatron writes them: \"Ett|(ttt|)*6tL\", E the embedding, t a layer, L "
          "the loss");
    field("decoder_first_pipeline_num_layers", &C::decoder_first_pipeline_num_layers,
          "Layers of the first stage; the others share the rest evenly");
    field("decoder_last_pipeline_num_layers", &C::decoder_last_pipeline_num_layers,
          "Layers of the last stage; the others share the rest evenly");
    field("account_for_embedding_in_pipeline_split", &C::account_for_embedding_in_pipeline_split,
          "Count the embedding as a layer where layers are shared evenly: the first stage has one less");
    field("account_for_loss_in_pipeline_split", &C::account_for_loss_in_pipeline_split,
          "Count the loss as a layer where layers are shared evenly: the last stage has one less");
    field("standalone_embedding_stage", &C::standalone_embedding_stage,
          "A first stage that has the embedding and no layers");
  }
};

// Layers of each chunk, in the order of the positions (core/layout/placement.h); empty: evenly. Throws
// kInvalidArgument, naming the flags.
std::vector<int64_t> layer_list(const TrainerConfig& config);
// Of the flags; nullopt if they do not say how many chunks a stage has.
std::optional<int> chunks_per_stage(const TrainerConfig& config);

Feature stage_layers_feature();

}  // namespace ms::train
