// How transformers chooses experts among groups, for models that are read from a Hugging Face configuration.
#pragma once

#include "core/config.h"
#include "train/config.h"

namespace ms::train {

// DeepSeek-V2 (softmax) ranks groups by their highest score: sets --moe-router-load-balancing-type
// group_limited_greedy, unless the user has given one. DeepSeek-V3 and its like rank them by their two highest scores,
// Megatron by so many as are chosen of each group: throws kUnsupported where these are not two.
void take_huggingface_routing(const core::ConfigFields& given, TrainerConfig& config);

}  // namespace ms::train
