#include "train/ops/column_parts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ms::ops {
namespace {

// Elements are numbered as they are in the whole tensor.
core::Tensor numbered(core::Arena& arena, const core::Dims& shape) {
  core::Tensor x(arena, core::DType::kFp32, shape, core::MemoryTag::kAct);
  std::iota(x.data<float>(), x.data<float>() + x.size(), 0.0F);
  return x;
}

TEST(ColumnParts, PartsOfAllRanksJoinToTheWhole) {
  core::Arena arena;
  core::ThreadPool pool(2);
  Context context{pool, arena};
  constexpr int64_t kSeq = 6, kBatch = 3;
  for (const int64_t n : {1, 2, 3}) {
    for (const int64_t width : {1, 5}) {
      const core::Tensor whole = numbered(arena, {kSeq, kBatch, n * width});
      core::Tensor parts(arena, core::DType::kFp32, {n, kSeq, kBatch, width}, core::MemoryTag::kAct);
      for (int64_t part = 0; part < n; ++part) {
        const core::Tensor own = part_of_columns(context, whole, part, n);
        EXPECT_EQ(own.shape(), (core::Dims{kSeq, kBatch, width}));
        EXPECT_EQ(own.data<float>()[width], static_cast<float>(n * width + part * width)) << "the second row";
        std::ranges::copy(own.view().elements<float>(), parts.data<float>() + part * own.size());
      }
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, kSeq}, {2, 2}, {5, 1}}) {
        const core::Tensor joined = join_parts(context, parts, first, count);
        ASSERT_EQ(joined.shape(), (core::Dims{count, kBatch, n * width}));
        for (int64_t i = 0; i < joined.size(); ++i)
          ASSERT_EQ(joined.data<float>()[i], static_cast<float>(first * kBatch * n * width + i))
              << n << " parts, " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ms::ops
