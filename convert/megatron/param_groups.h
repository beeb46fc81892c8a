// Converts between Megatron's parameter groups and ours (ckpt/optimizer_settings.h). A Megatron run assigns parameters
// to groups by shape and name; in a checkpoint the groups are identified by wd_mult, is_expert_parallel and
// is_decoupled_lr.
//
// Sources: megatron/core/optimizer/__init__.py (_get_param_groups), optimizer.py (_filter_and_reorder_param_groups).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/optimizer_settings.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/torch/pickle.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {

// Sets common["optimizer"] to the groups of an optimizer's dictionary, or of several chained ones. specs: of the whole
// model; empty: the groups' parameters are not listed, and only the first group is used.
void read_megatron_groups(PickleValue optimizer, std::span<const layout::ParameterSpec> specs, const GroupRule& rule,
                          nlohmann::json& common);

// The settings of the two groups of a Megatron run.
struct MegatronGroups {
  ckpt::OptimizerGroup decayed, other;  // matrices; vectors and biases. `params` is empty
  std::vector<std::string> dropped;     // settings of the source that two groups cannot express, one sentence each
};

// groups: of the source, not empty. If the parameters of a Megatron group are in several source groups, the group with
// most of them is used, and the others are listed in `dropped`.
MegatronGroups megatron_groups(std::span<const ckpt::OptimizerGroup> groups,
                               std::span<const layout::ParameterSpec> specs);

}  // namespace ms::convert
