// Compares every element of a checkpoint made from the values of make_megatron_tree.py with what belongs there.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/source.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "kernels/bf16.h"
#include "tests/convert/megatron/value_pattern.h"

namespace ms::test {

// Checks every element of a shard; returns the number of elements.
inline int64_t check_values(ckpt::Source& source, int32_t index) {
  const core::ShardedTensor shard = source.shards()[static_cast<size_t>(index)];
  const int64_t count = core::num_elements(shard.local_shape), item = core::size_of(shard.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(count * item));
  source.read(index, core::Dims(shard.local_shape.size(), 0), shard.local_shape, bytes.data());
  const bool fp32_model = shard.role == core::TensorRole::kParam && shard.dtype == core::DType::kFp32;
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    core::Dims at(shard.local_shape.size());
    int64_t rest = i;
    for (size_t axis = at.size(); axis-- > 0; rest /= shard.local_shape[axis]) {
      at[axis] = shard.global_offset[axis] + rest % shard.local_shape[axis];
    }
    const float wanted = pattern(fp32_model ? core::TensorRole::kMaster : shard.role, shard.key,
                                 layout::flat_index(shard.global_shape, at));
    float seen = 0;
    if (shard.dtype == core::DType::kBf16) {
      kernels::bf16 half{};
      std::memcpy(&half, bytes.data() + i * item, sizeof half);
      seen = static_cast<float>(half);
    } else {
      std::memcpy(&seen, bytes.data() + i * item, sizeof seen);
    }
    wrong += seen != wanted;
  }
  EXPECT_EQ(wrong, 0) << "of " << count << ": " << source.describe(index) << ", " << shard.key << " at "
                      << core::cat(shard.global_offset);
  return count;
}

// Elements of each tensor by role and name.
using Sizes = std::map<std::pair<core::TensorRole, std::string>, int64_t>;

inline Sizes check_all_values(ckpt::Source& source) {
  Sizes sizes;
  for (size_t s = 0; s < source.shards().size(); ++s) {
    const core::ShardedTensor shard = source.shards()[s];
    sizes[{shard.role, shard.key}] += check_values(source, static_cast<int32_t>(s));
  }
  return sizes;
}

}  // namespace ms::test
