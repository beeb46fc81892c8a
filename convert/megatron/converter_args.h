// The args of a tree that MindSpeed-LLM's convert_ckpt_v2.py made of a Hugging Face folder. They are no args of
// Megatron's but the members of that folder's config.json, so far as those are numbers, texts or lists of such, beside
// the converter's own.
//
// Source: mindspeed_llm/tasks/checkpoint/{convert_hf2mg,model_builder}.py.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/huggingface_config.h"
#include "convert/megatron/args.h"

namespace ms::convert {

bool are_converter_args(const MegatronArgs& args);

// hf_cfg_dir: the folder with the whole config.json, of which args lack what is nested (rope_scaling,
// rope_parameters); empty: none. The result's original is that file, or what a config.json of this model would be.
// Throws kUnsupported if args do not say rope_theta, and nothing else does; kInvalidArgument if hf_cfg_dir is of
// another model; what parse_hf_config throws.
HfConfig read_converter_args(const MegatronArgs& args, std::span<const int64_t> noop_layers,
                             const std::string& hf_cfg_dir, std::vector<std::string>& decisions);

}  // namespace ms::convert
