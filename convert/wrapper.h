// Models around a language model, such as those that see images: config.json has the language model's own in
// text_config, and its tensors lie under a prefix among others that no family names.
//
// The language model goes through its family, all other tensors pass through under their own names (passthrough.h).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"

namespace ms::convert {

// What a language model's tensors are called inside a wrapper: what stands in place of the family's prefix, and its
// output layer's whole name.
struct WrappedNames {
  std::string prefix, output;
  bool operator==(const WrappedNames&) const = default;
};

// Those of transformers 5 in memory, of what it writes and wrote before, in the order in which they are looked for.
std::span<const WrappedNames> wrapped_names();

// True if this config.json is of a wrapper that is known, by its model_type.
bool is_wrapper(const nlohmann::json& config);

// The model_types of wrappers.
std::vector<std::string_view> wrappers();

// The language model's config: text_config with what a wrapper's leaves out since it is the default of its class, with
// the family's model_type and the wrapper's tie_word_embeddings. A file of before text_config has these keys itself.
// Throws kCorruptData if there is no such config, kUnsupported for a language model of no known family.
nlohmann::json text_config(const nlohmann::json& config, std::string_view where);

// The family under other names.
std::shared_ptr<const Family> wrapped_family(const Family& family, const WrappedNames& names);

// Whether a tensor that is no part of the language model may pass through a known wrapper without being asked for.
bool is_wrapper_tensor(std::string_view name);

}  // namespace ms::convert
