// From one layout to another: which targets a checkpoint of the new layout consists of, and what had to be decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/layout.h"
#include "ckpt/source.h"

namespace ms::ckpt {

struct ReshardPlan {
  CheckpointInfo info;  // the source's, with the new layout
  ModelLayout layout;
  ShardList targets;                   // with the source's dtypes, tensor by tensor
  std::vector<std::string> decisions;  // one sentence each, for --dry-run and the log
};

// Every tensor of the source, role by role, cut for `layout`. drop_optimizer leaves out master weights and moments.
// Throws kInvalidArgument if the model cannot be cut so; kCorruptData if the source lacks a tensor of its model,
// kUnsupported if it holds one that the model does not have.
ReshardPlan plan_reshard(const Source& source, const ModelLayout& layout, bool drop_optimizer);

}  // namespace ms::ckpt
