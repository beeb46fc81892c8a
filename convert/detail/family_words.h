// Words that user_family.cpp reads and explain_family.cpp writes.
#pragma once

#include <string_view>
#include <utility>

#include "convert/family.h"

namespace ms::convert {

inline constexpr std::string_view kLayerPlaceholder = "{layer}";
inline constexpr std::string_view kLayersPlaceholder = "decoder.layers.{layer}.";
inline constexpr std::string_view kQkvGrouped = "qkv_grouped";

inline constexpr std::pair<std::string_view, Part> kPartNames[] = {
    {"whole", Part::kWhole}, {"query", Part::kQuery}, {"key", Part::kKey}, {"value", Part::kValue},
    {"qkv", Part::kQkv},     {"gate", Part::kGate},   {"up", Part::kUp}};

inline constexpr std::pair<std::string_view, bool ConfigKey::*> kKeyFlags[] = {
    {"null_is_none", &ConfigKey::null_is_none},
    {"whole_number", &ConfigKey::whole_number},
    {"negated", &ConfigKey::negated},
    {"may_be_zero", &ConfigKey::may_be_zero}};

inline constexpr std::pair<std::string_view, ExpertLayers> kExpertLayersNames[] = {
    {"all", ExpertLayers::kAll},
    {"after_first", ExpertLayers::kAfterFirst},
    {"sparse_step", ExpertLayers::kSparseStep}};

constexpr std::string_view part_name(Part part) {
  for (const auto& [name, each] : kPartNames) {
    if (each == part) return name;
  }
  return "";
}

constexpr std::string_view expert_layers_name(ExpertLayers layers) {
  for (const auto& [name, each] : kExpertLayersNames) {
    if (each == layers) return name;
  }
  return "";
}

constexpr bool is_qkv(std::string_view canonical) {
  return canonical.ends_with("linear_qkv.weight") || canonical.ends_with("linear_qkv.bias");
}

// The name in core::TransformerConfig::fields().
template <class T>
std::string_view field_name(T core::TransformerConfig::*wanted) {
  std::string_view found;
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    if constexpr (std::is_same_v<decltype(member), T core::TransformerConfig::*>) {
      if (member == wanted) found = name;
    }
  });
  return found;
}

}  // namespace ms::convert
