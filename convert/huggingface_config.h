// config.json of a Hugging Face model <-> core::TransformerConfig.
//
// What we cannot compute is refused by name (kinds of rope scaling, biases we have no place for, quantization);
// what does not change the numbers is carried along untouched, so that a folder converted in and back keeps its config.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "convert/family.h"
#include "core/dtype.h"
#include "core/transformer_config.h"

namespace ms::convert {

struct HfConfig {
  core::TransformerConfig model;  // resolved
  const Family* family = nullptr;
  std::optional<core::DType> dtype;  // dtype or torch_dtype; none where the file says neither
  // Of weights in FP8, which have a scale for each block of so many rows and columns (DeepSeek-V3); 0: none.
  int64_t fp8_block_rows = 0, fp8_block_columns = 0;
  nlohmann::json original;  // the whole file, but for quantization_config
};

// Whether config.json can say which layers of this model have experts.
bool can_say_layers(const Family& family, const core::TransformerConfig& model);

// path: config.json or the folder that holds it. Throws kNotFound, kCorruptData (not JSON; a key of the wrong type or
// out of range), kUnsupported naming the key.
// family: instead of the one that model_type names.
HfConfig read_hf_config(const std::string& path, const Family* family = nullptr);
HfConfig parse_hf_config(const nlohmann::json& json, std::string_view where, const Family* family = nullptr);

// Equal in everything that a config.json can say; the rest (padding of the vocabulary) may differ.
bool same_model(const core::TransformerConfig& a, const core::TransformerConfig& b);

// The config.json of a model. original: the one it once came with, or null. It is kept, key by key, where it still says
// what the model is; eos_token_id and bos_token_id come from it alone. It may speak of multi-token prediction that the
// model's weights lack: transformers leaves them out and the key in. Throws kUnsupported if no family can say it.
// family: that of the result; null: the first that can say the model.
nlohmann::json make_hf_config(const core::TransformerConfig& model, const nlohmann::json& original, core::DType dtype,
                              const Family* family = nullptr);

// A JSON file of at most max_bytes and bounded depth. Throws kNotFound, kIo, kCorruptData.
nlohmann::json read_json(const std::string& path, int64_t max_bytes);

// As transformers writes it: sorted keys, two spaces, ASCII, a final newline.
std::string hf_json_text(const nlohmann::json& json);

}  // namespace ms::convert
