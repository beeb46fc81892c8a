// Handles models around a language model, such as vision-language models: config.json contains the language model's
// config in text_config, and its tensors have a prefix and are stored among others that no family names.
//
// The language model is read through its family; all other tensors are copied unchanged (passthrough.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "core/io/json.h"

namespace ms::convert {

// The names of a language model's tensors in a wrapper: the replacement for the family's prefix, and the full name of
// the output layer.
struct WrappedNames {
  std::string prefix, output;
  bool operator==(const WrappedNames&) const = default;
};

// Returns the names used by transformers 5 in memory, and those that it writes and wrote earlier, in search order.
std::span<const WrappedNames> wrapped_names();

// Returns true if this config.json belongs to a known wrapper, by its model_type.
bool is_wrapper(const nlohmann::json& config);

// Returns the model_types of wrappers.
std::vector<std::string_view> wrappers();

// Returns the language model's config: text_config, completed by the class defaults that a wrapper's file leaves out,
// with the family's model_type and the wrapper's tie_word_embeddings. A file from before text_config has these keys at
// the top level. Throws kCorruptData if there is no such config, kUnsupported for a language model of an unknown
// family.
nlohmann::json text_config(const nlohmann::json& config, std::string_view where);

// Returns the family with other names.
std::shared_ptr<const Family> wrapped_family(const Family& family, const WrappedNames& names);

// Whether a tensor outside the language model may be copied through a known wrapper without a flag.
bool is_wrapper_tensor(std::string_view name);

}  // namespace ms::convert
