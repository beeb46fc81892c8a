#include "train/ops/rotary_position_embedding.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/rope.h"

namespace ms::ops {
namespace {

using kernels::RopePairs;
using reference::Array;
using reference::kFp32;
using reference::roundoff;

constexpr RopePairs kPairs[] = {RopePairs::kHalves, RopePairs::kNeighbours};

// y = x cos + R(x) sin by the definition, with rows of d, and table rows broadcast.
Array rotated(RopePairs pairs, const Array& x, const core::Dims& shape, const Array& cos, const Array& sin,
              const core::Dims& tables) {
  const int64_t d = shape[3];
  Array y;
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t k = 0; k < shape[2]; ++k) {
        const int64_t row = (i * shape[1] + j) * shape[2] + k;
        const int64_t table =
            ((tables[0] == 1 ? 0 : i) * tables[1] + (tables[1] == 1 ? 0 : j)) * tables[2] + (tables[2] == 1 ? 0 : k);
        for (int64_t e = 0; e < d; ++e) {
          const bool first = pairs == RopePairs::kHalves ? e < d / 2 : e % 2 == 0;
          const int64_t step = pairs == RopePairs::kHalves ? d / 2 : 1, other = first ? e + step : e - step;
          const double partner = x[static_cast<size_t>(row * d + other)] * (first ? -1 : 1);
          y.push_back(x[static_cast<size_t>(row * d + e)] * cos[static_cast<size_t>(table * d + e)] +
                      partner * sin[static_cast<size_t>(table * d + e)]);
        }
      }
    }
  }
  return y;
}

template <class T>
class Rotary : public ::testing::Test {};
TYPED_TEST_SUITE(Rotary, StorageTypes);

// Tables with one row per position, per position and batch, and for every axis; awkward head widths.
TYPED_TEST(Rotary, AgreesWithTheDefinitionAndCentralDifferences) {
  for (const RopePairs pairs : kPairs) {
    for (const int64_t d : {2, 6, 34, 64}) {
      const core::Dims shape = {2, 3, 5, d};
      for (const core::Dims& tables : {core::Dims{1, 1, 5, d}, core::Dims{2, 1, 5, d}, core::Dims{1, 3, 1, d}, shape}) {
        Ops ops(2);
        const auto x = ops.random<TypeParam>(shape, 1), dy = ops.random<TypeParam>(shape, 2);
        const auto cos = ops.random<TypeParam>(tables, 3), sin = ops.random<TypeParam>(tables, 4);
        const auto y = npu_rotary_position_embedding(ops.context, x, cos, sin, pairs);
        expect_near(y, rotated(pairs, array(x), shape, array(cos), array(sin), tables), 4 * kFp32,
                    roundoff<TypeParam>(), "y");
        const auto loss = [&](const Array& a, const Array& c, const Array& s) {
          return reference::dot(rotated(pairs, a, shape, c, s, tables), array(dy));
        };
        const auto seen = npu_rotary_position_embedding_backward(ops.context, dy, x, cos, sin, pairs, d <= 6);
        expect_near(
            seen.dx,
            reference::numeric_gradient([&](const Array& v) { return loss(v, array(cos), array(sin)); }, array(x)),
            1e-7 + 4 * kFp32, roundoff<TypeParam>(), "dx");
        EXPECT_EQ(seen.dcos.defined(), d <= 6);
        if (d > 6) continue;
        expect_near(
            seen.dcos,
            reference::numeric_gradient([&](const Array& v) { return loss(array(x), v, array(sin)); }, array(cos)),
            1e-7 + 30 * 12 * kFp32, roundoff<TypeParam>(), "dcos");
        expect_near(
            seen.dsin,
            reference::numeric_gradient([&](const Array& v) { return loss(array(x), array(cos), v); }, array(sin)),
            1e-7 + 30 * 12 * kFp32, roundoff<TypeParam>(), "dsin");
      }
    }
  }
}

// With the tables of train/ops/rope.h it equals rope_inplace, [seq, batch, heads, d].
TEST(Rotary, EqualsRopeForItsTables) {
  for (const RopePairs pairs : kPairs) {
    Ops ops(3);
    const RopeTable table(ops.arena, 7, rope_inverse_frequencies(16, 10000.0), pairs);
    std::vector<float> cos, sin;
    for (int64_t s = 0; s < 7; ++s) {
      for (int64_t e = 0; e < 16; ++e) {
        const int64_t pair = pairs == RopePairs::kHalves ? e % 8 : e / 2;
        cos.push_back(table.cos()[s * 8 + pair]);
        sin.push_back(table.sin()[s * 8 + pair]);
      }
    }
    const auto x = ops.random<float>({7, 2, 3, 16}, 1);
    const auto y = npu_rotary_position_embedding(ops.context, x, ops.tensor(cos, {7, 1, 1, 16}),
                                                 ops.tensor(sin, {7, 1, 1, 16}), pairs);
    rope_inplace(ops.context, x, table, 0, false);
    expect_near(y, array(x), 2 * kFp32, 0, "y");
  }
}

TEST(RotaryContract, RefusesMismatchedTables) {
  Ops ops;
  const auto x = ops.random<float>({2, 3, 4, 6}, 1), odd = ops.random<float>({2, 3, 4, 5}, 1);
  EXPECT_THROW(npu_rotary_position_embedding(ops.context, x, ops.random<float>({1, 1, 3, 6}, 2),
                                             ops.random<float>({1, 1, 3, 6}, 2)),
               core::Error);
  EXPECT_THROW(npu_rotary_position_embedding(ops.context, x, ops.random<float>({1, 1, 4, 6}, 2),
                                             ops.random<float>({1, 1, 1, 6}, 2)),
               core::Error);
  EXPECT_THROW(npu_rotary_position_embedding(ops.context, odd, odd, odd), core::Error);
}

}  // namespace
}  // namespace ms::ops
