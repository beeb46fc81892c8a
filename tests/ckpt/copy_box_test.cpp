#include "ckpt/copy_box.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace ms::ckpt {
namespace {

TEST(CopyBox, CopiesTheElementsOfTheBoxAndNoOthers) {
  std::vector<int32_t> source(4 * 5 * 6), target(3 * 7 * 6, -1), expected = target;
  std::iota(source.begin(), source.end(), 0);
  const core::Dims from{1, 2, 0}, to{0, 3, 0};
  for (const core::Dims& extent : {core::Dims{2, 3, 6}, core::Dims{2, 3, 2}, core::Dims{0, 3, 6}}) {
    std::fill(target.begin(), target.end(), -1);
    expected = target;
    for (int64_t i = 0; i < extent[0]; ++i) {
      for (int64_t j = 0; j < extent[1]; ++j) {
        for (int64_t k = 0; k < extent[2]; ++k) {
          expected[static_cast<size_t>(((to[0] + i) * 7 + to[1] + j) * 6 + to[2] + k)] =
              source[static_cast<size_t>(((from[0] + i) * 5 + from[1] + j) * 6 + from[2] + k)];
        }
      }
    }
    copy_box(reinterpret_cast<const std::byte*>(source.data()), {4, 5, 6}, from,
             reinterpret_cast<std::byte*>(target.data()), {3, 7, 6}, to, extent, sizeof(int32_t));
    EXPECT_EQ(target, expected);
  }
}

TEST(CopyBox, BytesOfAShardAreItsLocalElements) {
  core::ShardedTensor shard;
  shard.dtype = core::DType::kBf16;
  shard.local_shape = {3, 5};
  EXPECT_EQ(bytes_of(shard), 30);
}

}  // namespace
}  // namespace ms::ckpt
