// Plans a change of layout: the target shards of the new checkpoint, and the decisions that were made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/native_sink.h"
#include "ckpt/shard_list.h"
#include "ckpt/source.h"
#include "core/layout/model_layout.h"

namespace ms::ckpt {

struct ReshardPlan {
  CheckpointInfo info;  // the source's, with the new layout
  layout::ModelLayout layout;
  ShardList targets;                   // with the source's dtypes, tensor by tensor
  std::vector<std::string> decisions;  // one sentence each, for --dry-run and the log
};

struct ReshardOptions {
  bool drop_optimizer = false;              // drops master weights and moments
  std::optional<core::DType> params_dtype;  // dtype of parameters in the result; nullopt: as in the source
};

// All tensors of the source, by role, sharded for `layout`. Ordered as the model, or, for a model with parameters
// beyond parameter_specs, by layer, expert and name, so that the files do not depend on the source's layout.
// Throws kInvalidArgument if the model cannot be sharded like this; kCorruptData if the source lacks a tensor of its
// model, kUnsupported if it has one that the model lacks.
ReshardPlan plan_reshard(const Source& source, const layout::ModelLayout& layout, const ReshardOptions& options);

// 16 hex digits derived from the plan and the values of the source: two reshards with the same digits write the same
// files. Empty if the source has no logical hashes.
std::string hash_of_plan(const Source& source, const ReshardPlan& plan, bool compress);

// The logical hashes that a copy of the source must have, for tensors whose dtype does not change. `source` is not
// owned.
ExpectedHash hashes_to_keep(const Source& source);

}  // namespace ms::ckpt
