// Opens a Megatron checkpoint of --ckpt-format torch_dist (.metadata and *.distcp) as a ckpt::Source.
//
// Keys are megatron-core's names; a tensor holds one kind of parameter stacked over all layers, or each layer has its
// own. Boxes of stored tensors are boxes of canonical tensors. Source: megatron/core/dist_checkpointing,
// megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/megatron.h"

namespace ms::convert {

// Returns what identifies a complete checkpoint in the folder or in one of its iterations: "iter_0000100/.metadata and
// metadata.json"; empty if there is none.
std::string megatron_dist_sign(const std::string& folder);

// path, options, decisions: as in open_megatron. Optimizer state is read if it is stored by parameter, whole or flat
// (fully_reshardable, fully_sharded_model_space, and that of the non-distributed optimizer), or bucket by bucket
// (megatron/dist_buckets.h). Throws kCorruptData (a file, tensor or part of one is missing, damaged, or differs in
// shape from args; an iteration without metadata.json), kUnsupported (models that TransformerConfig cannot express;
// optimizer state of another kind; args neither in common.pt nor stored with the tensors).
std::unique_ptr<ckpt::Source> open_megatron_dist(const std::string& path, const MegatronOptions& options,
                                                 std::vector<std::string>& decisions);

}  // namespace ms::convert
