// From one layout to another: which targets a checkpoint of the new layout consists of, and what had to be decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/layout.h"
#include "ckpt/native_sink.h"
#include "ckpt/source.h"

namespace ms::ckpt {

struct ReshardPlan {
  CheckpointInfo info;  // the source's, with the new layout
  ModelLayout layout;
  ShardList targets;                   // with the source's dtypes, tensor by tensor
  std::vector<std::string> decisions;  // one sentence each, for --dry-run and the log
};

struct ReshardOptions {
  bool drop_optimizer = false;              // leaves out master weights and moments
  std::optional<core::DType> params_dtype;  // of parameters in the result; else as in the source
};

// Every tensor of the source, role by role, cut for `layout`: in model order, or for a model with parameters beyond
// parameter_specs by layer, expert and name, so that the files do not depend on the layout they come from.
// Throws kInvalidArgument if the model cannot be cut so; kCorruptData if the source lacks a tensor of its model,
// kUnsupported if it holds one that the model does not have.
ReshardPlan plan_reshard(const Source& source, const ModelLayout& layout, const ReshardOptions& options);

// 16 hex digits that stand for the plan and the values of the source: two reshards with the same one write the same
// files. Empty for a source that has no logical hashes.
std::string hash_of_plan(const Source& source, const ReshardPlan& plan, bool compress);

// The logical hashes that a copy of the source must have, for tensors that keep their dtype. `source` is not owned.
ExpectedHash hashes_to_keep(const Source& source);

}  // namespace ms::ckpt
