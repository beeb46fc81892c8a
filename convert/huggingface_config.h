// config.json of a Hugging Face model <-> core::TransformerConfig.
//
// What we cannot compute is refused by name (kinds of rope scaling, biases we have no place for, quantization);
// what does not change the numbers is carried along untouched, so that a folder converted in and back keeps its config.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "convert/wrapper.h"
#include "core/dtype.h"
#include "core/transformer_config.h"

namespace ms::convert {

struct HfConfig {
  core::TransformerConfig model;  // resolved
  const Family* family = nullptr;
  // Of a wrapper (wrapper.h): model and family are the language model's, under the names that rename() chose.
  bool is_wrapper = false;
  WrappedNames wrapped;
  std::shared_ptr<const Family> owned;  // `family`, of a wrapper

  // The language model's tensors under the first names of wrapped_names() of which `has` says that they are there.
  // Nothing for what is no wrapper.
  void rename(const std::function<bool(std::string_view name)>& has);
  std::optional<core::DType> dtype;  // dtype or torch_dtype; none where the file says neither
  // Of weights in FP8, which have a scale for each block of so many rows and columns (DeepSeek-V3); 0: none.
  int64_t fp8_block_rows = 0, fp8_block_columns = 0;
  std::vector<std::string> unused_keys;  // that nobody here knows; those known to change the model are refused
  nlohmann::json original;               // the whole file, but for quantization_config
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

// The family whose tensors a Hugging Face result with this config.json has: `named`, or that of its model_type; of a
// wrapper under the names that model_extra (of the source) says; of a model_type that nobody knows, what the map in
// model_extra says. Throws kUnsupported if there is none.
std::shared_ptr<const Family> family_of_result(const nlohmann::json& config, const nlohmann::json& model_extra,
                                               const Family* named = nullptr);

// A JSON file of at most max_bytes and bounded depth. Throws kNotFound, kIo, kCorruptData.
nlohmann::json read_json(const std::string& path, int64_t max_bytes);

// As transformers writes it: sorted keys, two spaces, ASCII, a final newline.
std::string hf_json_text(const nlohmann::json& json);

}  // namespace ms::convert
