#include "train/ops/head_parts.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

constexpr int64_t kSeq = 5, kBatch = 2, kD = 3;

struct Case {
  int64_t heads, parts, copies;
};
constexpr Case kCases[] = {{4, 1, 1}, {4, 2, 1}, {8, 4, 1}, {1, 4, 4}, {2, 4, 2}, {3, 2, 2}};

template <class T>
class HeadParts : public ::testing::Test {};
TYPED_TEST_SUITE(HeadParts, StorageTypes);

TYPED_TEST(HeadParts, EachPartHasItsHeads) {
  Ops ops(2);
  for (const Case& of : kCases) {
    const auto x = ops.random<TypeParam>({kSeq, kBatch, of.heads, kD}, 1);
    const auto parts = split_heads(ops.context, x, of.parts, of.copies);
    const int64_t each = of.heads * of.copies / of.parts;
    ASSERT_EQ(parts.shape(), (core::Dims{of.parts * kSeq, kBatch, each, kD}));
    const reference::Array from = array(x), to = array(parts);
    for (int64_t part = 0; part < of.parts; ++part) {
      for (int64_t token = 0; token < kSeq * kBatch; ++token) {
        for (int64_t i = 0; i < each * kD; ++i) {
          const int64_t head = (part * each + i / kD) / of.copies;
          ASSERT_EQ(to[static_cast<size_t>((part * kSeq * kBatch + token) * each * kD + i)],
                    from[static_cast<size_t>((token * of.heads + head) * kD + i % kD)]);
        }
      }
    }
  }
}

TYPED_TEST(HeadParts, AreJoinedAndCopiesAdded) {
  Ops ops(2);
  for (const Case& of : kCases) {
    const int64_t each = of.heads * of.copies / of.parts;
    const auto parts = ops.random<TypeParam>({of.parts * kSeq, kBatch, each, kD}, 2);
    const auto joined = join_heads(ops.context, parts, of.parts, of.copies);
    ASSERT_EQ(joined.shape(), (core::Dims{kSeq, kBatch, of.heads, kD}));
    reference::Array want(static_cast<size_t>(joined.size()));
    const reference::Array from = array(parts);
    for (size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t part = at / (kSeq * kBatch * each * kD), token = at / (each * kD) % (kSeq * kBatch);
      const int64_t head = (part * each + at / kD % each) / of.copies;
      want[static_cast<size_t>((token * of.heads + head) * kD + at % kD)] += from[i];
    }
    const double eps = reference::roundoff<TypeParam>();
    expect_near(joined, want, 2 * static_cast<double>(of.copies) * reference::roundoff<float>(), eps, "sums");
    if (of.copies > 1) continue;
    EXPECT_TRUE(same_bytes(split_heads(ops.context, joined, of.parts, 1), parts));
  }
}

TEST(HeadPartsOfFp32, RefusesPartsOfHeads) {
  Ops ops;
  const auto x = ops.random<float>({kSeq, kBatch, 3, kD}, 1);
  EXPECT_THROW(split_heads(ops.context, x, 2, 1), core::Error);
  EXPECT_THROW(join_heads(ops.context, x, 2, 1), core::Error);
}

}  // namespace
}  // namespace ms::ops
