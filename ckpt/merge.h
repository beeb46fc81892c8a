// Several checkpoints of one model as one whose parameters are their weighted average.
#pragma once

#include <memory>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

// Its shards, dtypes and training progress are those of the first checkpoint; the others may be cut in any other way
// and have other dtypes among fp32, bf16 and fp16. A parameter is sum(weight * value) / sum(weights), added in double
// and rounded to fp32, then to its dtype. Buffers, and parameters that are no floating-point numbers, are the first's.
// Optimizer state has no average: to be left out by who reads this. Not thread-safe against the sources being used
// elsewhere. Throws kInvalidArgument if the weights are not as many as the sources, all above 0, or if the sources have
// different parameters.
std::unique_ptr<Source> merge_sources(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights);

}  // namespace ms::ckpt
