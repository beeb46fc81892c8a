// A Megatron checkpoint of --ckpt-format torch_dist (.metadata and *.distcp) as a ckpt::Source.
//
// Its keys are megatron-core's names, all layers of a kind stacked in one tensor, or each by its own index; its boxes
// are boxes of canonical tensors. Source: megatron/core/dist_checkpointing,
// megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/megatron.h"

namespace ms::convert {

// What in a folder, or of an iteration in it, says that it is such a checkpoint and whole: "iter_0000100/.metadata and
// metadata.json"; empty if nothing does.
std::string megatron_dist_sign(const std::string& folder);

// path, options, decisions: as of open_megatron. Optimizer state is taken where it is kept by parameter, whole or flat
// (fully_reshardable, fully_sharded_model_space, and that of the optimizer that is not distributed), and bucket by
// bucket (megatron/dist_buckets.h). Throws kCorruptData (a file, tensor or part of one is
// missing, damaged, of another shape than args say; an iteration without metadata.json), kUnsupported (what
// TransformerConfig cannot say; optimizer state of another kind; no args, neither in common.pt nor beside the tensors).
std::unique_ptr<ckpt::Source> open_megatron_dist(const std::string& path, const MegatronOptions& options,
                                                 std::vector<std::string>& decisions);

}  // namespace ms::convert
