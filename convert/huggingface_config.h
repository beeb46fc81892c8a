// Converts between config.json of a Hugging Face model and core::TransformerConfig.
//
// Settings that we cannot compute are refused by name (kinds of RoPE scaling, biases without a place, quantization).
// Settings that do not affect the result are kept unchanged, so that a folder converted in and back keeps its config.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "convert/wrapper.h"
#include "core/dtype.h"
#include "core/io/json.h"
#include "core/transformer_config.h"

namespace ms::convert {

struct HfConfig {
  core::TransformerConfig model;  // resolved
  const Family* family = nullptr;
  // For a wrapper (wrapper.h), model and family are the language model's, with the names that rename() chose.
  bool is_wrapper = false;
  WrappedNames wrapped;
  std::shared_ptr<const Family> owned;  // owns `family`, for a wrapper

  // Selects the first of wrapped_names() whose tensors exist according to `has`. Does nothing if this is not a wrapper.
  void rename(const std::function<bool(std::string_view name)>& has);
  std::optional<core::DType> dtype;  // dtype or torch_dtype; nullopt if the file has neither
  // Block size of FP8 weights, which have one scale per block (DeepSeek-V3); 0: not FP8.
  int64_t fp8_block_rows = 0, fp8_block_columns = 0;
  std::vector<std::string> unused_keys;  // unknown keys; keys known to change the model are refused
  nlohmann::json original;               // the whole file, without quantization_config
};

// Whether config.json can express which layers of this model have experts.
bool can_express_layers(const Family& family, const core::TransformerConfig& model);

// path: config.json or its folder. Throws kNotFound, kCorruptData (not JSON; a key of the wrong type or out of range),
// kUnsupported naming the key. family: replaces the one that model_type names.
HfConfig read_hf_config(const std::string& path, const Family* family = nullptr);

// What transformers computes otherwise than Megatron and mstrain do with the same numbers: sentences, for a warning.
std::vector<std::string> differences_of_training(const core::TransformerConfig& model);
HfConfig parse_hf_config(const nlohmann::json& json, std::string_view where, const Family* family = nullptr);

// Compares everything that a config.json can express; the rest (vocabulary padding) may differ.
bool same_model(const core::TransformerConfig& a, const core::TransformerConfig& b);
// In what they differ, as flags with the values of `a`: "--softmax-type off-by-one, --sliding-window 7"; empty if they
// are the same.
std::string model_differences(const core::TransformerConfig& a, const core::TransformerConfig& b);

// Returns the config.json of a model. original: the one that it came with, or null. Its keys are kept as long as they
// still describe the model; eos_token_id and bos_token_id come only from it. It may announce multi-token prediction
// that the weights lack: transformers drops these weights and keeps the key. Throws kUnsupported if no family can
// express the model. family: of the result; null: the first that can express the model.
nlohmann::json make_hf_config(const core::TransformerConfig& model, const nlohmann::json& original, core::DType dtype,
                              const Family* family = nullptr);

// Returns the family of a Hugging Face result with this config.json: `named`, or that of its model_type; for a wrapper
// with the tensor names in model_extra (of the source); for an unknown model_type the one of the map in model_extra.
// Throws kUnsupported if there is none.
std::shared_ptr<const Family> family_of_result(const nlohmann::json& config, const nlohmann::json& model_extra,
                                               const Family* named = nullptr);

// Reads a JSON file of at most max_bytes and of bounded depth. Throws kNotFound, kIo, kCorruptData.
nlohmann::json read_json(const std::string& path, int64_t max_bytes);

// Formats as transformers does: sorted keys, two spaces, ASCII, a final newline.
std::string hf_json_text(const nlohmann::json& json);

}  // namespace ms::convert
