// Megatron's groups of parameters and ours (ckpt/optimizer_settings.h). A Megatron run decides by shape and name which
// parameter is in which of its groups; a checkpoint's groups are told apart by wd_mult, is_expert_parallel and
// is_decoupled_lr.
//
// Sources: megatron/core/optimizer/__init__.py (_get_param_groups), optimizer.py (_filter_and_reorder_param_groups).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/layout.h"
#include "ckpt/optimizer_settings.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/torch/pickle.h"

namespace ms::convert {

// Sets the groups that an optimizer's dictionary states, or several chained ones', in common["optimizer"]. specs: of
// the whole model; empty: which parameters are in which group is left open, and only the first group is taken.
void read_megatron_groups(PickleValue optimizer, std::span<const ckpt::ParameterSpec> specs, const GroupRule& rule,
                          nlohmann::json& common);

// What the two groups of a Megatron run get.
struct MegatronGroups {
  ckpt::OptimizerGroup decayed, other;  // matrices; vectors and biases. Without params
  std::vector<std::string> dropped;     // what the source's groups say that these cannot, one sentence each
};

// groups: of the source, not empty. Where the parameters of a Megatron group are in several of the source's, that of
// most of them counts, and the others are named in `dropped`.
MegatronGroups megatron_groups(std::span<const ckpt::OptimizerGroup> groups,
                               std::span<const ckpt::ParameterSpec> specs);

}  // namespace ms::convert
