// Merges a PEFT LoRA adapter into the weights of a checkpoint while they are read.
//
// The result is W + scale * B A, computed in fp32 and rounded once; scale is lora_alpha / r, or lora_alpha / sqrt(r)
// with use_rslora. Sources: PEFT's src/peft/tuners/lora/layer.py (get_delta_weight) and src/peft/utils/save_and_load.py
// (the names).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// folder: contains adapter_config.json and adapter_model.safetensors or .bin. as_fp32: merged weights are fp32;
// otherwise they keep the element type of `base`.
//
// Appends what was merged to `decisions`. Throws kNotFound, kCorruptData (half of a pair is missing, or a shape differs
// from the weight's), kUnsupported (another tuner than LoRA, DoRA, trained biases, a module that the model does not
// have).
std::unique_ptr<ckpt::Source> merge_lora(std::unique_ptr<ckpt::Source> base, const std::string& folder, bool as_fp32,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
