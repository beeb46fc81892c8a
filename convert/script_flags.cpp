#include "convert/script_flags.h"

#include <algorithm>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr const char* kFromModel = "the checkpoint describes its model";
constexpr const char* kFromContent = "the format of --load-dir is detected by its content";
constexpr const char* kNoLoraTrees =
    "MindSpeed-LLM's LoRA checkpoints are not supported; --lora merges an adapter saved by PEFT";

constexpr ScriptFlagUse kRefused = ScriptFlagUse::kRefused;
constexpr ScriptFlag kFlags[] = {
    {"--use-mcore-models", 0, "a Megatron result is always megatron-core's"},
    {"--spec", 2, kFromModel},
    {"--add-qkv-bias", 0, kFromModel},
    {"--post-norm", 0, kFromModel},
    {"--tokenizer-model", 1, "tokenizer files of a hf result come from a hf source or from --hf-cfg-dir"},
    {"--vocab-file", 1, "the vocabulary's size is the model's, or --true-vocab-size"},
    {"--save-layer-by-layer", 0, "memory is always bounded by --mem"},
    {"--max-queue-size", 1, "memory is always bounded by --mem"},
    {"--no-checking", 0, "everything is always checked"},
    {"--trust-remote-code", 0, "no model code is executed"},
    {"--megatron-path", 1, "no Megatron code is executed"},
    {"--loader", 1, kFromContent},
    {"--loader-transformer-impl", 1, kFromContent},
    {"--checkpoint-type", 1, kFromContent},
    {"--model-size", 1, kFromContent},
    {"--source-tensor-parallel-size", 1, kFromContent},
    {"--source-pipeline-parallel-size", 1, kFromContent},
    {"--source-expert-parallel-size", 1, kFromContent},
    {"--mla-mm-split", 0,
     "trees whose latent attention has four up projections are detected by content, and cannot be written",
     ScriptFlagUse::kRefusedForTrees},
    {"--load-checkpoint-loosely", 0, "a missing weight is an error", kRefused},
    {"--lora-load", 1, kNoLoraTrees, kRefused},
    {"--lora-r", 1, kNoLoraTrees, kRefused},
    {"--lora-alpha", 1, kNoLoraTrees, kRefused},
    {"--lora-target-modules", kManyValues, kNoLoraTrees, kRefused},
    {"--save-lora-to-hf", 0, kNoLoraTrees, kRefused},
    {"--qlora-nf4", 0, "weights are not quantized to NF4", kRefused},
    {"--orm", 0, "reward models are not supported", kRefused},
};

// (MindSpeed-LLM's name, config.json's model_type).
constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"llama2", "llama"},
                                                                    {"llama3", "llama"},
                                                                    {"magistral", "mistral"},
                                                                    {"qwen25", "qwen2"},
                                                                    {"deepseek2", "deepseek_v2"},
                                                                    {"deepseek2_lite", "deepseek_v2"},
                                                                    {"deepseek3", "deepseek_v3"},
                                                                    {"glm45", "glm4_moe"},
                                                                    {"glm45_air", "glm4_moe"},
                                                                    {"glm4_9b", "glm4"},
                                                                    {"phi3.5", "phi3"}};

}  // namespace

std::span<const ScriptFlag> script_flags() { return kFlags; }

std::vector<std::string> notes_on_script_flags(std::span<const std::string> given, bool writes_tree) {
  std::vector<std::string> notes;
  for (const ScriptFlag& flag : kFlags) {
    if (std::find(given.begin(), given.end(), flag.name) == given.end()) continue;
    const bool is_refused = flag.use == kRefused || (writes_tree && flag.use == ScriptFlagUse::kRefusedForTrees);
    if (is_refused) throw Error(ErrorCode::kUnsupported, cat(flag.name, ": ", flag.why));
    notes.push_back(cat(flag.name, " has no effect: ", flag.why));
  }
  return notes;
}

const Family& family_of_script(std::string_view model_type_hf, bool with_qkv_bias) {
  std::string name(model_type_hf);
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "llama2" && with_qkv_bias) name = "qwen25";
  for (const auto& [theirs, ours] : kNames) {
    if (name == theirs) name = ours;
  }
  for (const Family* family : families()) {
    if (family->model_type == name) return *family;
  }
  std::string known;
  for (const Family* family : families()) known += cat(known.empty() ? "" : ", ", family->model_type);
  throw Error(ErrorCode::kUnsupported,
              cat("--model-type-hf ", detail::printable(model_type_hf), " is not supported; known: ", known,
                  ", and MindSpeed-LLM's names for them"));
}

const Family* check_script_claims(const ScriptClaims& claims, const core::TransformerConfig& model,
                                  const nlohmann::json& hf_config, int64_t noop_layers) {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  if (claims.num_layers && *claims.num_layers != model.num_layers &&
      *claims.num_layers != model.num_layers + noop_layers) {
    refuse("--num-layers ", *claims.num_layers, ", but the model has ", model.num_layers,
           ": layers cannot be left out or added");
  }
  if (claims.first_k_dense_replace) {
    const std::vector<bool> experts = model.layers_with_experts();
    const auto dense = std::find(experts.begin(), experts.end(), true) - experts.begin();
    if (dense != *claims.first_k_dense_replace) {
      refuse("--first-k-dense-replace ", *claims.first_k_dense_replace, ", but the first ", dense, " of the model's ",
             model.num_layers, " layers have no experts");
    }
  }
  if (claims.mtp_num_layers && *claims.mtp_num_layers != model.mtp_num_layers) {
    refuse("--mtp-num-layers ", *claims.mtp_num_layers, ", but the model has ", model.mtp_num_layers,
           " multi-token prediction layers, which are all converted");
  }
  if (claims.model_type_hf.empty()) return nullptr;
  const Family& family = family_of_script(claims.model_type_hf, claims.add_qkv_bias);
  const std::string said = hf_config.is_object() ? hf_config.value("model_type", "") : "";
  if (!said.empty() && said != family.model_type) {
    refuse("--model-type-hf ", detail::printable(claims.model_type_hf), " is ", family.model_type,
           ", but config.json's model_type is ", detail::printable(said));
  }
  if (said.empty() && !can_express(family, model)) {
    refuse("--model-type-hf ", detail::printable(claims.model_type_hf), ": a config.json of ", family.model_type,
           " cannot express this model: it has no key for ", lost_by(family, model));
  }
  return &family;
}

}  // namespace ms::convert
