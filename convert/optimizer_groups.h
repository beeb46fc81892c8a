// Converts optimizer parameter groups between programs that use Hugging Face's tensor names and the canonical form
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

// A group as the program stores it: settings.params is empty, `names` are the family's.
struct NamedGroup {
  ckpt::OptimizerGroup settings;
  std::vector<std::string> names;
};

// Stores the canonical groups, in the given order, in common["optimizer"]. Names that the family lacks (the output
// layer of a tied model, frozen additions) belong to no group. Groups without a parameter of the model are left out.
// Throws kUnsupported if parts of one canonical parameter (q and k of an attention) are in groups with different
// settings, or if the optimizer stores state that is not Adam's (amsgrad).
void add_named_groups(std::span<const NamedGroup> groups, const Family& family, const core::TransformerConfig& model,
                      const std::string& where, nlohmann::json& common);

// Returns the name of a tensor in a model in memory, where one tensor holds all experts of a layer.
std::string name_in_memory(const MappedTensor& mapped);

// Returns the groups of a target whose tensors have the family's names. Throws kUnsupported if experts of one tensor
// are in groups with different settings; kCorruptData for a parameter that is in no group.
std::vector<NamedGroup> named_groups(std::span<const ckpt::OptimizerGroup> groups, const Family& family,
                                     const core::TransformerConfig& model);

}  // namespace ms::convert
