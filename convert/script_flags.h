// What script lines of other converters say, so that they go on working with msckpt convert: MindSpeed-LLM's
// convert_ckpt_v2.py and convert_ckpt.py, and Megatron's tools/checkpoint/convert.py.
//
// Most of their flags are flags of ours, with the same meaning. The rest has nothing to say here, and why is said aloud
// where one is given; or asks for something that we do not do, and is refused.
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
};  // the last: as a source it says nothing

struct ScriptFlag {
  const char* name;  // "--use-mcore-models"
  int values;        // how many follow; kManyValues: one or more
  const char* why;   // it has nothing to say, or is refused
  ScriptFlagUse use = ScriptFlagUse::kSaysNothing;
};
inline constexpr int kManyValues = -1;

std::span<const ScriptFlag> script_flags();

// given: names of such flags. writes_tree: of Megatron. A sentence for each. Throws kUnsupported for one that is
// refused.
std::vector<std::string> notes_on_script_flags(std::span<const std::string> given, bool writes_tree);

// What a script line says of the model, which we know without it: it must be so.
struct ScriptClaims {
  std::string model_type_hf;
  bool add_qkv_bias = false;  // --add-qkv-bias, with which convert_ckpt.py's llama2 is Qwen2
  std::optional<int64_t> num_layers, first_k_dense_replace, mtp_num_layers;
};

// Of --model-type-hf: MindSpeed-LLM's names, and those of config.json with '-' or '_'. with_qkv_bias: --add-qkv-bias,
// with which convert_ckpt.py's llama2 is Qwen2. Throws kUnsupported for a family that is not known.
const Family& family_of_script(std::string_view model_type_hf, bool with_qkv_bias);

// hf_config: what config.json of the source says, or null. noop_layers: how many --noop-layers names, which may be
// counted in num_layers. Returns the family of model_type_hf, or null. Throws kInvalidArgument for a claim that is not
// so, naming both; what family_of_script throws.
const Family* check_script_claims(const ScriptClaims& claims, const core::TransformerConfig& model,
                                  const nlohmann::json& hf_config, int64_t noop_layers);

}  // namespace ms::convert
