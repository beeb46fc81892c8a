// Merges checkpoints of one model into one whose parameters are their weighted average.
#pragma once

#include <memory>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

// Shards, dtypes and training progress are those of the first checkpoint; the others may be sharded differently and
// have other dtypes among fp32, bf16 and fp16. A parameter is sum(weight * value) / sum(weights), added in double and
// rounded to fp32, then to its dtype. Buffers, and parameters that are not floating-point, are taken from the first.
// Optimizer state has no average: the reader must leave it out. The sources must not be used elsewhere at the same
// time. Throws kInvalidArgument unless there is one weight above 0 per source and all sources have the same parameters.
std::unique_ptr<Source> merge_sources(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights);

}  // namespace ms::ckpt
