// Typed access to the keys of config.json that records which keys were read, and checks the others.
//
// A key that nobody read is harmless (generation settings, token ids, file history), or changes what the model computes
// and must have the value that changes nothing, or is unknown and listed for the user to judge.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"
#include "core/transformer_config.h"

namespace ms::convert {

inline constexpr int64_t kMaxConfigSize = int64_t{1} << 30;  // any one dimension; the product of two does not overflow
inline constexpr int64_t kMaxConfigCount = 1 << 16;  // number of layers and of heads, which lists are allocated for

// null counts as absent. All members throw kCorruptData, naming the key, for a value of another type or out of range.
class ConfigKeys {
 public:
  // object and where (prepended to messages) must outlive this object.
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

  // Returns the keys that were not read, are not in `harmless` and are not known to be harmless, in the order of the
  // file. model: the resolved result of the keys that were read. Throws kUnsupported for a key that gives the model
  // something that `model` lacks: multipliers, biases, windows, layers without RoPE.
  std::vector<std::string> unused(const core::TransformerConfig& model,
                                  std::span<const std::string_view> harmless) const;

 private:
  const nlohmann::json& object_;
  std::string_view where_;
  mutable std::set<std::string, std::less<>> read_;
};

// Translates "gelu_new" and the like to "silu", "gelu_tanh", "gelu" or "relu2"; returns an empty string for any other
// name.
std::string_view activation_of(std::string_view name);

}  // namespace ms::convert
