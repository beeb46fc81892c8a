#include "train/ops/elementwise.h"

#include "core/error.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

using kernels::bf16;
using kernels::to_float;

template <class T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, StorageTypes);

TYPED_TEST(Elementwise, EveryElementIsRoundedOnce) {
  for (const int64_t n : {0, 1, 17, 40001}) {  // the last is split over threads
    Ops ops(2);
    const auto a = ops.random<TypeParam>({n}, 1), b = ops.random<TypeParam>({n}, 2);
    const auto sum = ops.random<float>({n}, 3);
    const auto sum_before = values<float>(sum);
    const auto in_place = ops.tensor(values<TypeParam>(a), a.shape()),
               scaled = ops.tensor(values<TypeParam>(a), a.shape());
    const auto added = add(ops.context, a, b);
    add_inplace(ops.context, in_place, b);
    scale_inplace(ops.context, scaled, 0.3F);
    accumulate_fp32(ops.context, sum, a);
    EXPECT_TRUE(same_bytes(added, in_place));
    for (int64_t i = 0; i < n; ++i) {
      const float x = to_float(a.template data<TypeParam>()[i]), y = to_float(b.template data<TypeParam>()[i]);
      ASSERT_EQ(added.template data<TypeParam>()[i], TypeParam(x + y)) << i;
      ASSERT_EQ(scaled.template data<TypeParam>()[i], TypeParam(x * 0.3F)) << i;
      ASSERT_EQ(sum.data<float>()[i], sum_before[static_cast<size_t>(i)] + x) << i;
    }
    fill_zero(ops.context, added);
    for (const TypeParam value : values<TypeParam>(added)) ASSERT_EQ(to_float(value), 0.0F);
  }
}

TEST(Cast, ConvertsBetweenAllStorageTypes) {
  Ops ops(2);
  const auto x = ops.random<float>({3, 11, 701}, 1);
  const auto narrow = cast(ops.context, x, core::DType::kBf16);
  EXPECT_EQ(narrow.shape(), x.shape());
  for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(narrow.data<bf16>()[i], bf16(x.data<float>()[i]));
  const auto wide = cast(ops.context, narrow, core::DType::kFp32);
  for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(wide.data<float>()[i], to_float(narrow.data<bf16>()[i]));
  // bf16's 8 bits of mantissa fit into fp16's 11 within fp16's range.
  const auto half = cast(ops.context, narrow, core::DType::kFp16);
  const auto back = cast(ops.context, half, core::DType::kBf16);
  const auto widened = cast(ops.context, half, core::DType::kFp32);
  EXPECT_TRUE(same_bytes(cast(ops.context, widened, core::DType::kFp16), half));
  for (int64_t i = 0; i < x.size(); ++i) {
    if (std::abs(wide.data<float>()[i]) > 1e-3F) {
      ASSERT_EQ(back.data<bf16>()[i], narrow.data<bf16>()[i]);
    }
  }
  EXPECT_TRUE(same_bytes(cast(ops.context, x, core::DType::kFp32), x));
  EXPECT_THROW(cast(ops.context, x, core::DType::kInt32), core::Error);
}

TEST(ElementwiseContract, RefusesDifferentSizes) {
  Ops ops;
  const auto a = ops.random<float>({3}, 1), b = ops.random<float>({4}, 1);
  EXPECT_THROW(add(ops.context, a, b), core::Error);
  EXPECT_THROW(accumulate_fp32(ops.context, a, b), core::Error);
  EXPECT_THROW(cast_into(ops.context, a, b), core::Error);
}

}  // namespace
}  // namespace ms::ops
