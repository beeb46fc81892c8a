// Keys of config.json: typed access that remembers which were read, and what the others mean.
//
// A key that nobody read is harmless (generation, tokens, how the file came to be), or changes what the model computes
// and must then have the value that changes nothing, or is unknown and listed for the user to judge.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/transformer_config.h"

namespace ms::convert {

inline constexpr int64_t kMaxConfigSize = int64_t{1} << 30;  // of any one dimension: products of two do not overflow
inline constexpr int64_t kMaxConfigCount = 1 << 16;          // of layers and heads, for which lists are made

// null counts as absent. All throw kCorruptData naming the key for a value of another type or out of range.
class ConfigKeys {
 public:
  // object, where (begins messages): outlive it.
  ConfigKeys(const nlohmann::json& object, std::string_view where) : object_(object), where_(where) {}

  const nlohmann::json* find(std::string_view key) const;
  int64_t size(std::string_view key, std::optional<int64_t> absent = std::nullopt, int64_t most = kMaxConfigSize,
               int64_t least = 1) const;
  double number(std::string_view key, double absent, bool may_be_zero = false) const;
  bool flag(std::string_view key, bool absent) const;
  std::string text(std::string_view key, const std::string& absent) const;
  bool has_null(std::string_view key) const;

  [[noreturn]] void fail(core::ErrorCode code, std::string_view key, const std::string& what) const;
  [[noreturn]] void unsupported(std::string_view key) const;

  // Keys that were not asked for, are not in `harmless` and not known to be: in the order of the file's keys. model:
  // what the read ones say, resolved. Throws kUnsupported for a key that changes what the model computes into what
  // `model` does not say: multipliers, biases, windows, layers without rotary embedding.
  std::vector<std::string> unused(const core::TransformerConfig& model,
                                  std::span<const std::string_view> harmless) const;

 private:
  const nlohmann::json& object_;
  std::string_view where_;
  mutable std::set<std::string, std::less<>> read_;
};

// "gelu_new" and the like, as one of ours: "silu", "gelu_tanh", "gelu"; empty if it is none.
std::string_view activation_of(std::string_view name);

}  // namespace ms::convert
