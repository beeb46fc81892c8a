// The same range of queries and keys in each sample of a batch.
#pragma once

#include <vector>

#include "train/ops/range_attention.h"

namespace ms::ops {

inline std::vector<AttentionRange> in_each_sample(AttentionRange range, int64_t batch) {
  std::vector<AttentionRange> ranges;
  for (range.sample = 0; range.sample < batch; ++range.sample) ranges.push_back(range);
  return ranges;
}

}  // namespace ms::ops
