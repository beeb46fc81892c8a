// A LoRA adapter of PEFT, merged into the weights of a checkpoint while they are read.
//
// W + scale * B A, in fp32, rounded once; scale is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora. Sources:
// PEFT's src/peft/tuners/lora/layer.py (get_delta_weight) and src/peft/utils/save_and_load.py (the names).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// folder: of adapter_config.json and adapter_model.safetensors or .bin. as_fp32: weights that the adapter changes are
// fp32, else of the element type that `base` has them in.
//
// What was merged is appended to `decisions`. Throws kNotFound, kCorruptData (half of a pair is missing, another shape
// than the weight's), kUnsupported (another tuner than LoRA, DoRA, trained biases, a module that the model does not
// have).
std::unique_ptr<ckpt::Source> merge_lora(std::unique_ptr<ckpt::Source> base, const std::string& folder, bool as_fp32,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
