// The shards that ranks of a parallel layout hold (core/layout), and that a checkpoint of it contains.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/rank_runs.h"
#include "ckpt/shard_table.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::ckpt {

struct RoleSpec {
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
};

// The shards of one parameter and role that `rank` holds, in local order as in boxes_of_local_range; empty if it holds
// none. From ZeRO stage 1 on the optimizer's roles are sharded to the rank's distributed_range, in stage 3 all roles
// but kBuffer. replica_id is 0 on exactly one of the ranks that hold an element.
std::vector<core::ShardedTensor> shards_of_parameter(const layout::ParameterSpec& spec,
                                                     const core::TransformerConfig& config,
                                                     const layout::ModelLayout& layout, int rank, const RoleSpec& role);

// All shards of a rank: role by role, parameter by parameter.
std::vector<core::ShardedTensor> shards_of_rank(const layout::ModelLayout& layout,
                                                const core::TransformerConfig& config, int rank,
                                                std::span<const RoleSpec> roles);

// The shards that a complete checkpoint of this layout contains: those with replica_id 0 of all ranks, stage by
// stage, rank by rank.
struct ShardList {
  ShardTable shards;
  RankRuns ranks;  // same length: which rank's file holds the shard
};
ShardList shards_of_checkpoint(const layout::ModelLayout& layout, const core::TransformerConfig& config,
                               std::span<const RoleSpec> roles);

// The same for any list of parameters. `dtype_of` returns the dtype of a parameter (index into specs) and role, or
// nullopt if it is not in the checkpoint. Within a rank ordered by role, then by specs. Throws as validate_layer_map,
// and kInvalidArgument if a matrix cannot be split.
ShardList shards_of_checkpoint(
    const layout::ModelLayout& layout, const core::TransformerConfig& config,
    std::span<const layout::ParameterSpec> specs, std::span<const core::TensorRole> roles,
    const std::function<std::optional<core::DType>(size_t spec, core::TensorRole)>& dtype_of);

}  // namespace ms::ckpt
