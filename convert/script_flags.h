// Accepts the flags of other converters' script lines, so that they work with msckpt convert: of MindSpeed-LLM's
// convert_ckpt_v2.py and convert_ckpt.py, and of Megatron's tools/checkpoint/convert.py.
//
// Most of their flags are ours too, with the same meaning. Of the others, some are not needed here, and a note explains
// why; some ask for what msckpt does not do, and are refused.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"

namespace ms::convert {

enum class ScriptFlagUse : uint8_t {
  kSaysNothing,
  kRefused,
  kRefusedForTrees
};  // the last: without effect for a source

struct ScriptFlag {
  const char* name;  // "--use-mcore-models"
  int values;        // number of values; kManyValues: one or more
  const char* why;   // why the flag has no effect, or is refused
  ScriptFlagUse use = ScriptFlagUse::kSaysNothing;
};
inline constexpr int kManyValues = -1;

std::span<const ScriptFlag> script_flags();

// given: names of such flags. writes_tree: the target is a Megatron tree. Returns one sentence for each. Throws
// kUnsupported for one that is refused.
std::vector<std::string> notes_on_script_flags(std::span<const std::string> given, bool writes_tree);

// What a script line claims about the model, which must agree with the checkpoint.
struct ScriptClaims {
  std::string model_type_hf;
  bool add_qkv_bias = false;  // --add-qkv-bias, which makes convert_ckpt.py's llama2 Qwen2
  std::optional<int64_t> num_layers, first_k_dense_replace, mtp_num_layers;
};

// Parses --model-type-hf: MindSpeed-LLM's names, and those of config.json with '-' or '_'. with_qkv_bias:
// --add-qkv-bias, which makes convert_ckpt.py's llama2 Qwen2. Throws kUnsupported for an unknown family.
const Family& family_of_script(std::string_view model_type_hf, bool with_qkv_bias);

// hf_config: the source's config.json, or null. noop_layers: number of layers that --noop-layers names, which may be
// included in num_layers. Returns the family of model_type_hf, or null. Throws kInvalidArgument for a claim that does
// not hold, naming both sides; what family_of_script throws.
const Family* check_script_claims(const ScriptClaims& claims, const core::TransformerConfig& model,
                                  const nlohmann::json& hf_config, int64_t noop_layers);

}  // namespace ms::convert
