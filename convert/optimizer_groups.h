// Groups of an optimizer's parameters, between a program that names tensors as Hugging Face does and the canonical form
// (ckpt/optimizer_settings.h).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/optimizer_settings.h"
#include "convert/name_map.h"

namespace ms::convert {

// A group as the program keeps it: settings.params is empty, `names` are the family's.
struct NamedGroup {
  ckpt::OptimizerGroup settings;
  std::vector<std::string> names;
};

// The canonical groups, in the given order, into common["optimizer"]. Names that the family does not have (the output
// layer of a tied model, frozen additions) belong to no group. Groups without a parameter of the model are left out.
// Throws kUnsupported if parts of one canonical parameter (q and k of an attention) are in groups of other settings, or
// if the optimizer keeps state that is not Adam's (amsgrad).
void add_named_groups(std::span<const NamedGroup> groups, const Family& family, const core::TransformerConfig& model,
                      const std::string& where, nlohmann::json& common);

// What a model in memory calls a tensor: all experts of a layer lie in one.
std::string name_in_memory(const MappedTensor& mapped);

// The groups of a target whose tensors have the family's names. Throws kUnsupported if experts that one tensor holds
// are in groups of other settings; kCorruptData for a parameter that is in no group.
std::vector<NamedGroup> named_groups(std::span<const ckpt::OptimizerGroup> groups, const Family& family,
                                     const core::TransformerConfig& model);

}  // namespace ms::convert
