#include "train/parallel/sequence_order.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/thread_pool.h"

namespace ms::train {
namespace {

constexpr int64_t kWidth = 3;

// Of each row its number in `order`, in every column.
core::Tensor rows_of(ops::Context& ops, const std::vector<int>& order) {
  core::Tensor x(ops.arena, core::DType::kFp32, {static_cast<int64_t>(order.size()), kWidth}, core::MemoryTag::kAct);
  for (size_t row = 0; row < order.size(); ++row) {
    for (int64_t i = 0; i < kWidth; ++i) x.data<float>()[static_cast<int64_t>(row) * kWidth + i] = float(order[row]);
  }
  return x;
}

std::vector<int> order_of(const core::Tensor& x) {
  std::vector<int> order;
  for (int64_t row = 0; row < x.dim(0); ++row) {
    order.push_back(static_cast<int>(x.data<float>()[row * kWidth]));
    for (int64_t i = 1; i < kWidth; ++i) EXPECT_EQ(x.data<float>()[row * kWidth + i], float(order.back()));
  }
  return order;
}

TEST(SequenceOrder, RanksHavePartsFromTheFrontAndFromTheBack) {
  core::Arena arena;
  core::ThreadPool pool(1);
  ops::Context ops{pool, arena};
  const std::vector<int> in_order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::pair<int, std::vector<int>> cases[] = {{1, in_order},
                                                    {2, {0, 1, 2, 9, 10, 11, 3, 4, 5, 6, 7, 8}},
                                                    {3, {0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7}},
                                                    {6, {0, 11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6}}};
  for (const auto& [ranks, by_rank] : cases) {
    SCOPED_TRACE(ranks);
    EXPECT_EQ(order_of(rows_by_position(ops, rows_of(ops, by_rank), ranks)), in_order);
    EXPECT_EQ(order_of(rows_by_rank(ops, rows_of(ops, in_order), ranks)), by_rank);
  }
}

}  // namespace
}  // namespace ms::train
