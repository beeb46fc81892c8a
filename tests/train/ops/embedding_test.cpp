#include "train/ops/embedding.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using reference::Array;

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, StorageTypes);

TYPED_TEST(Embedding, LooksUpItsSliceAndScattersBack) {
  constexpr int64_t kRows = 10, kWidth = 70, kFirst = 20, kN = 200;
  Ops ops(2);
  const auto weight = ops.random<TypeParam>({kRows, kWidth}, 1);
  const auto ids = test::RandomValues(2).integers(kN, 15, 35);  // some before, some after the slice, many repeated
  const auto out = embedding(ops.context, ids, weight, kFirst);
  ASSERT_EQ(out.shape(), (core::Dims{kN, kWidth}));
  const auto dy = ops.random<TypeParam>({kN, kWidth}, 3);
  const auto main_grad = ops.zeros({kRows, kWidth});
  main_grad.template data<float>()[0] = 5;
  embedding_backward(ops.context, ids, dy, main_grad, kFirst);
  const Array table = array(weight), got = array(out), gradient = array(dy);
  Array want_grad(kRows * kWidth);
  want_grad[0] = 5;
  for (size_t i = 0; i < kN; ++i) {
    const int64_t row = ids[i] - kFirst;
    const bool ours = row >= 0 && row < kRows;
    for (size_t j = 0; j < kWidth; ++j) {
      ASSERT_EQ(got[i * kWidth + j], ours ? table[static_cast<size_t>(row * kWidth) + j] : 0.0);
      if (ours) want_grad[static_cast<size_t>(row * kWidth) + j] += gradient[i * kWidth + j];
    }
  }
  // Up to 40 sums of values of at most 1 a row, of partial sums below 40.
  expect_near(main_grad, want_grad, 40 * 40 * reference::kFp32, 0, "main_grad");

  Ops one(1);
  const auto alone = one.zeros({kRows, kWidth});
  alone.template data<float>()[0] = 5;
  embedding_backward(one.context, ids, dy, alone, kFirst);
  EXPECT_TRUE(same_bytes(alone, main_grad)) << "bits depend on the number of threads";
}

TYPED_TEST(Embedding, PositionsAreAddedFromFirstPositionWithTheirGradients) {
  constexpr int64_t kSeq = 5, kBatch = 3, kWidth = 7, kFirst = 4;
  Ops ops(2);
  const auto hidden = ops.random<TypeParam>({kSeq, kBatch, kWidth}, 1), table = ops.random<TypeParam>({12, kWidth}, 2);
  const reference::Array before = array(hidden), rows = array(table);
  add_position_embedding(ops.context, hidden, table, kFirst);
  reference::Array want, gradient(12 * kWidth);
  for (int64_t row = 0; row < kSeq * kBatch; ++row) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto at = static_cast<size_t>(row * kWidth + i),
                 of = static_cast<size_t>((kFirst + row / kBatch) * kWidth + i);
      want.push_back(before[at] + rows[of]);
      gradient[of] += before[at];
    }
  }
  expect_near(hidden, want, 0, 2 * reference::roundoff<TypeParam>(), "hidden");
  const auto dhidden = ops.random<TypeParam>({kSeq, kBatch, kWidth}, 1);
  const auto main_grad = ops.zeros({12, kWidth});
  position_embedding_backward(ops.context, dhidden, main_grad, kFirst);
  expect_near(main_grad, gradient, 3 * reference::kFp32 * kBatch, 0, "main_grad");
  EXPECT_THROW(add_position_embedding(ops.context, hidden, table, 8), core::Error);
}

TEST(EmbeddingContract, AcceptsNoIdsAndRefusesWrongShapes) {
  Ops ops;
  const auto weight = ops.random<float>({4, 3}, 1);
  EXPECT_EQ(embedding(ops.context, {}, weight, 0).shape(), (core::Dims{0, 3}));
  const std::vector<int32_t> ids = {1, 2};
  EXPECT_THROW(embedding_backward(ops.context, ids, weight, ops.zeros({4, 3}), 0), core::Error);
}

}  // namespace
}  // namespace ms::ops
