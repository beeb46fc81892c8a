// Reads the args of a tree that MindSpeed-LLM's convert_ckpt_v2.py made from a Hugging Face folder. They are not
// Megatron's args: they are the config.json members that are numbers, strings or lists of these, and the converter's
// own flags.
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

// hf_cfg_dir: the folder with the complete config.json, since args lack nested members (rope_scaling, rope_parameters);
// empty: none. The result's `original` is that file, or an equivalent config.json. Throws kUnsupported if neither args
// nor the file has rope_theta; kInvalidArgument if hf_cfg_dir describes another model; and what parse_hf_config throws.
HfConfig read_converter_args(const MegatronArgs& args, std::span<const int64_t> noop_layers,
                             const std::string& hf_cfg_dir, std::vector<std::string>& decisions);

}  // namespace ms::convert
