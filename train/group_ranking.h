// By what a router ranks groups of experts (--moe-router-group-topk), which the weights do not tell: Megatron by the
// sum of as many scores as are chosen of each group, transformers' DeepSeek-V2 by the highest, its DeepSeek-V3 by the
// two highest (modeling_deepseek_v2.py, modeling_deepseek_v3.py). A model trained with one is another with the other.
#pragma once

#include "ckpt/source.h"
#include "core/config.h"
#include "core/io/json.h"
#include "train/config.h"

namespace ms::train {

// Of a model from a Hugging Face configuration. Softmax: sets --moe-router-load-balancing-type group_limited_greedy,
// unless the user has given one. Otherwise throws kUnsupported where other than two are chosen of each group.
void take_huggingface_group_ranking(const core::ConfigFields& given, TrainerConfig& config);
// The same of a checkpoint: as the run did that has saved it, else as the Hugging Face configuration in it says.
void take_group_ranking(const ckpt::CheckpointInfo& info, const core::ConfigFields& given, TrainerConfig& config);

// Throws kInvalidArgument if the run that has saved the checkpoint ranked groups otherwise. config: resolved.
void check_group_ranking(const ckpt::CheckpointInfo& info, const TrainerConfig& config);
// Notes the ranking in a checkpoint's `common`, where it makes a difference.
void note_group_ranking(const TrainerConfig& config, nlohmann::json& common);

}  // namespace ms::train
