#include "train/ops/packed_weight.h"

#include <type_traits>

#include "kernels/isa.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/linear.h"

namespace ms::ops {
namespace {

template <class T>
class PackedWeightOf : public ::testing::Test {};
TYPED_TEST_SUITE(PackedWeightOf, StorageTypes);

// Products use the weight's value when they begin, packed once per change. There is no copy if gemm reads no packed
// operand, nor for gradients where packing costs as much as reading it.
TYPED_TEST(PackedWeightOf, IsPackedOncePerChange) {
  constexpr int64_t kTokens = 50, kOut = 130, kIn = 67;
  Ops ops(2);
  ops.context.deterministic = true;
  const auto x = ops.random<TypeParam>({kTokens, kIn}, 1);
  const auto dy = ops.random<TypeParam>({kTokens, kOut}, 2);
  const auto weight = ops.random<TypeParam>({kOut, kIn}, 3);
  int64_t changes = 0;
  PackedWeight packed(changes);
  const bool reads = kernels::active_isa() != kernels::Isa::kScalar;
  const bool gradients = std::is_same_v<TypeParam, kernels::bf16> && kernels::active_isa() == kernels::Isa::kAmx;
  for (int64_t step = 1; step < 4; ++step) {
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      EXPECT_TRUE(same_bytes(linear(ops.context, x, weight, {}, &packed), linear(ops.context, x, weight)));
      EXPECT_TRUE(same_bytes(linear_fp32(ops.context, x, weight, &packed), linear_fp32(ops.context, x, weight)));
      EXPECT_EQ(packed.times_packed(), reads ? step : 0);
      EXPECT_TRUE(same_bytes(linear_dgrad(ops.context, dy, weight, &packed), linear_dgrad(ops.context, dy, weight)));
      EXPECT_EQ(packed.times_packed_for_gradients(), gradients ? step : 0);
    }
    EXPECT_EQ(ops.arena.current_bytes(core::MemoryTag::kPacked) > 0, reads);
    const core::TensorView view = weight;
    for (int64_t i = 0; i < view.size(); ++i) {
      view.data<TypeParam>()[i] = TypeParam(-static_cast<float>(view.data<TypeParam>()[i]));
    }
    ++changes;
  }
}

TEST(PackedWeight, IsNotUsedForOperandsOfAnotherType) {
  Ops ops;
  const auto weight = ops.random<kernels::bf16>({20, 10}, 1);
  const auto x = ops.random<float>({6, 10}, 2);
  const int64_t changes = 0;
  PackedWeight packed(changes);
  EXPECT_TRUE(same_bytes(linear_fp32(ops.context, x, weight, &packed), linear_fp32(ops.context, x, weight)));
  EXPECT_EQ(packed.times_packed(), 0);
}

}  // namespace
}  // namespace ms::ops
