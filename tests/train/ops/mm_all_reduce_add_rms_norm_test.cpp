#include "train/ops/mm_all_reduce_add_rms_norm.h"

#include <cmath>

#include "tests/reference/matmul.h"
#include "tests/support/thrown.h"
#include "tests/train/ops/comm_ranks.h"
#include "tests/train/ops/integers.h"
#include "train/ops/elementwise.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/norm.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;
using reference::Array;

constexpr int64_t kRows = 60, kK = 96, kN = 40;

// What a rank passes; each rank has a product of its own, all have one residual and one gamma.
template <class T>
struct Arguments {
  Arguments(Ops& ops, int rank)
      : x1(ops.random<T>({kRows, kK}, salt_of(rank, 1))),
        x2(ops.random<T>({kK, kN}, salt_of(rank, 2), 0.2F)),
        bias(ops.random<T>({kN}, salt_of(rank, 3))),
        residual(ops.random<T>({2, kRows / 2, kN}, 4)),
        gamma(ops.random<T>({kN}, 5)) {}
  Tensor x1, x2, bias, residual, gamma;
};

struct Reference {
  Array y, norm_out;
};

// The definition, in double.
template <class T>
Reference reference_of(int ranks, double epsilon) {
  Ops ops;
  Reference want{array(Arguments<T>(ops, 0).residual), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    const Arguments<T> of(ops, rank);
    const Array product = reference::matmul(array(of.x1), false, array(of.x2), false, kRows, kN, kK).value,
                bias = array(of.bias);
    for (size_t i = 0; i < product.size(); ++i) want.y[i] += product[i] + bias[i % kN];
  }
  const Array gamma = array(Arguments<T>(ops, 0).gamma);
  for (size_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (size_t j = 0; j < kN; ++j) squares += want.y[row * kN + j] * want.y[row * kN + j];
    const double r = 1 / std::sqrt(squares / kN + epsilon);
    for (size_t j = 0; j < kN; ++j) want.norm_out.push_back(want.y[row * kN + j] * r * gamma[j]);
  }
  return want;
}

template <class T>
class MmAllReduceAddRmsNorm : public ::testing::Test {};
using SummedTypes = ::testing::Types<float, kernels::bf16>;
TYPED_TEST_SUITE(MmAllReduceAddRmsNorm, SummedTypes);

TYPED_TEST(MmAllReduceAddRmsNorm, IsTheSumOverRanksOfTheDefinition) {
  const double near = std::is_same_v<TypeParam, float> ? 1e-6 : 2e-2;
  for (const int ranks : {1, 2, 4}) {
    const Reference want = reference_of<TypeParam>(ranks, 1e-3);
    const double scale = reference::max_abs(want.y);
    on_ranks(ranks, [&](Ops& ops, core::Communicator& world) {
      for (const int64_t parts : {0, 1, 3}) {
        const Arguments<TypeParam> of(ops, world.rank());
        const auto [y, norm_out] =
            npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, of.x2, of.residual, of.gamma, world,
                                           {.epsilon = 1e-3, .bias = &of.bias.view(), .comm_turn = parts});
        EXPECT_EQ(y.shape(), of.residual.shape());
        EXPECT_EQ(norm_out.shape(), of.residual.shape());
        expect_near(y, want.y, near * scale, near, "y");
        expect_near(norm_out, want.norm_out, 2 * near, 2 * near, "norm_out");
        EXPECT_TRUE(same_bytes(of.residual, Arguments<TypeParam>(ops, 0).residual));
      }
    });
  }
}

// The operators one after the other, from a rank's product on.
struct Unfused {
  Tensor y, norm_out;
};
Unfused unfused(Ops& ops, core::Communicator& world, Tensor product, const TensorView& residual,
                const TensorView& gamma) {
  world.allreduce(product);
  product.reshape(residual.shape());
  Tensor y = add(ops.context, product, residual);
  Tensor norm_out = rms_norm(ops.context, y, gamma, {1e-6}, nullptr);
  return {std::move(y), std::move(norm_out)};
}

TYPED_TEST(MmAllReduceAddRmsNorm, HasTheBitsOfTheOperatorsApart) {
  for (const int ranks : {2, 4}) {
    on_ranks(ranks, [](Ops& ops, core::Communicator& world) {
      const Arguments<TypeParam> of(ops, world.rank());
      const std::vector<int64_t> ends = {kRows};
      const TensorView bias = of.bias.view().reshaped({1, kN});
      const auto want = unfused(
          ops, world,
          grouped_matmul(ops.context, of.x1, of.x2.view().reshaped({1, kK, kN}), ends, GroupedWeight::kInOut, &bias),
          of.residual, of.gamma);
      Tensor turned(ops.arena, of.x2.dtype(), {kN, kK}, core::MemoryTag::kTmp);
      for (int64_t i = 0; i < kK * kN; ++i) {
        turned.template data<TypeParam>()[i % kN * kK + i / kN] = of.x2.template data<TypeParam>()[i];
      }
      for (const int64_t parts : {1, 3}) {
        const auto seen = npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, of.x2, of.residual, of.gamma, world,
                                                         {.bias = &bias, .comm_turn = parts});
        EXPECT_TRUE(same_bytes(seen.y, want.y)) << parts;
        EXPECT_TRUE(same_bytes(seen.norm_out, want.norm_out)) << parts;
        const auto from_turned =
            npu_mm_all_reduce_add_rms_norm(ops.context, of.x1.view().reshaped({3, 20, kK}), turned, of.residual,
                                           of.gamma, world, {.bias = &bias, .comm_turn = parts, .transpose_x2 = true});
        expect_near(from_turned.y, array(want.y), 1e-5, 2 * reference::roundoff<TypeParam>(), "of x2 turned");
      }
    });
  }
}

TYPED_TEST(MmAllReduceAddRmsNorm, InPlaceTheResidualBecomesTheSum) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<TypeParam> of(ops, world.rank()), other(ops, world.rank());
    for (const int64_t parts : {1, 5}) {
      const MmAllReduceAddRmsNormOptions options{.comm_turn = parts};
      const auto want =
          npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, of.x2, of.residual, of.gamma, world, options);
      const Tensor residual = cast(ops.context, of.residual, of.residual.dtype());
      const Tensor norm_out =
          npu_mm_all_reduce_add_rms_norm_(ops.context, of.x1, of.x2, residual, of.gamma, world, options);
      EXPECT_TRUE(same_bytes(residual, want.y));
      EXPECT_TRUE(same_bytes(norm_out, want.norm_out));
    }
  });
}

// Every row of x1 is read before the same row of the residual is written.
TYPED_TEST(MmAllReduceAddRmsNorm, InPlaceTheResidualMayBeTheLeftOperand) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const auto x2 = ops.random<TypeParam>({kN, kN}, salt_of(world.rank(), 1));
    const auto gamma = ops.random<TypeParam>({kN}, 2);
    const auto x = ops.random<TypeParam>({1, kRows, kN}, 3);
    const MmAllReduceAddRmsNormOptions options{.comm_turn = 4};
    const auto want = npu_mm_all_reduce_add_rms_norm(ops.context, x, x2, x, gamma, world, options);
    const auto norm_out = npu_mm_all_reduce_add_rms_norm_(ops.context, x, x2, x, gamma, world, options);
    EXPECT_TRUE(same_bytes(x, want.y));
    EXPECT_TRUE(same_bytes(norm_out, want.norm_out));
  });
}

// Scales of the whole weight, of its columns and of three slices of k; with int8 and packed 4-bit weights.
TYPED_TEST(MmAllReduceAddRmsNorm, WeightsMayBeIntegers) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<TypeParam> of(ops, world.rank());
    const std::vector<int64_t> ends = {kRows};
    const TensorView bias = of.bias.view().reshaped({1, kN});
    const auto weight = int8s(ops, {kK, kN}, salt_of(world.rank(), 6), -8, 7);
    const auto packed = packed_int4(ops, weight, core::DType::kInt32);
    for (const core::Dims& shape : {core::Dims{1}, core::Dims{1, kN}, core::Dims{3, kN}}) {
      const auto scale = ops.random<TypeParam>(shape, 7, 0.05F), offset = ops.random<TypeParam>(shape, 8, 5);
      const core::Dims of_group = shape[0] == 3 ? core::Dims{1, 3, kN} : shape;
      const TensorView grouped_offset = offset.view().reshaped(of_group);
      const auto want = unfused(ops, world,
                                weight_quant_gmm(ops.context, of.x1, weight.view().reshaped({1, kK, kN}),
                                                 {scale.view().reshaped(of_group), &grouped_offset}, ends, &bias),
                                of.residual, of.gamma);
      for (const Tensor* x2 : {&weight, &packed}) {
        const auto seen = npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, *x2, of.residual, of.gamma, world,
                                                         {.bias = &bias,
                                                          .antiquant_scale = &scale.view(),
                                                          .antiquant_offset = &offset.view(),
                                                          .antiquant_group_size = shape[0] == 3 ? 32 : 0,
                                                          .comm_turn = 2});
        EXPECT_TRUE(same_bytes(seen.y, want.y));
        EXPECT_TRUE(same_bytes(seen.norm_out, want.norm_out));
      }
    }
  });
}

// 96 rows of a weight in groups of 64: the second has 32.
TEST(MmAllReduceAddRmsNormQuantised, TheLastGroupMayBeShorter) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<float> of(ops, world.rank());
    const auto weight = int8s(ops, {kK, kN}, salt_of(world.rank(), 6));
    const auto scale = ops.random<float>({2, kN}, 7, 1e-3F);
    std::vector<float> real;
    for (int64_t i = 0; i < kK * kN; ++i) {
      const int64_t group = i / kN / 64;
      real.push_back(static_cast<float>(int8_array(weight)[static_cast<size_t>(i)]) *
                     scale.data<float>()[group * kN + i % kN]);
    }
    const auto want =
        npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, ops.tensor(real, {kK, kN}), of.residual, of.gamma, world);
    const auto seen = npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, weight, of.residual, of.gamma, world,
                                                     {.antiquant_scale = &scale.view(), .antiquant_group_size = 64});
    EXPECT_TRUE(same_bytes(seen.y, want.y));
    EXPECT_TRUE(same_bytes(seen.norm_out, want.norm_out));
  });
}

TYPED_TEST(MmAllReduceAddRmsNorm, BothOperandsMayBeIntegers) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<TypeParam> of(ops, world.rank());
    const std::vector<int64_t> ends = {kRows};
    const auto x1 = int8s(ops, {kRows, kK}, salt_of(world.rank(), 6)),
               x2 = int8s(ops, {kK, kN}, salt_of(world.rank(), 7));
    const auto bias = ops.tensor(test::RandomValues(8).integers(kN, -5000, 5000), {1, kN});
    for (const int64_t scales : {int64_t{1}, kN}) {
      const auto scale = ops.random<kernels::bf16>({scales}, 9, 1e-4F);
      std::vector<float> each;
      for (size_t j = 0; j < kN; ++j) each.push_back(static_cast<float>(array(scale)[scales == 1 ? 0 : j]));
      QuantGmmParams params;
      params.bias = &bias.view(), params.output_dtype = of.residual.dtype();
      const auto want =
          unfused(ops, world,
                  quant_gmm(ops.context, x1, x2.view().reshaped({1, kK, kN}), ops.tensor(each, {1, kN}), ends, params),
                  of.residual, of.gamma);
      const auto seen =
          npu_mm_all_reduce_add_rms_norm(ops.context, x1, x2, of.residual, of.gamma, world,
                                         {.bias = &bias.view(), .dequant_scale = &scale.view(), .comm_turn = 3});
      EXPECT_TRUE(same_bytes(seen.y, want.y));
      EXPECT_TRUE(same_bytes(seen.norm_out, want.norm_out));
    }
  });
}

TEST(MmAllReduceAddRmsNormMessages, AreOneForEachPartAndBesideTheNextProduct) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<float> of(ops, world.rank());
    for (const int64_t parts : {1, 4}) {
      world.reset_counters();
      npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, of.x2, of.residual, of.gamma, world, {.comm_turn = parts});
      EXPECT_EQ(world.counter(core::CommOp::kAllreduce).calls, parts);
      EXPECT_EQ(world.counter(core::CommOp::kAllreduce).payload_bytes, kRows * kN * 4);
    }
  });
  const auto run = [](int64_t parts) {
    return messages_beside(2, "allreduce", "matmul", [parts](Ops& ops, core::Communicator& world) {
      const Arguments<float> of(ops, world.rank());
      npu_mm_all_reduce_add_rms_norm(ops.context, of.x1, of.x2, of.residual, of.gamma, world, {.comm_turn = parts});
    });
  };
  EXPECT_EQ(run(1), 0);
  EXPECT_GE(run(4), 2);  // of the three that another part follows
}

TEST(MmAllReduceAddRmsNormContract, TakesNoRows) {
  on_ranks(2, [](Ops& ops, core::Communicator& world) {
    const Arguments<float> of(ops, world.rank());
    const auto none = ops.zeros({0, kK}), residual = ops.zeros({2, 0, kN});
    const auto seen = npu_mm_all_reduce_add_rms_norm(ops.context, none, of.x2, residual, of.gamma, world);
    EXPECT_EQ(seen.norm_out.shape(), residual.shape());
    EXPECT_EQ(world.counter(core::CommOp::kAllreduce).calls, 0);
  });
}

TEST(MmAllReduceAddRmsNormContract, RefusesWhatDoesNotFitInOneLine) {
  on_ranks(1, [](Ops& ops, core::Communicator& world) {
    const Arguments<float> of(ops, 0);
    const auto text_of = [&](const TensorView& x1, const TensorView& x2, const TensorView& residual,
                             const TensorView& gamma, const MmAllReduceAddRmsNormOptions& options) {
      const test::Thrown thrown = test::thrown_by(
          [&] { npu_mm_all_reduce_add_rms_norm(ops.context, x1, x2, residual, gamma, world, options); });
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
      EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
      return thrown.text;
    };
    const std::string prefix = "npu_mm_all_reduce_add_rms_norm: ";
    EXPECT_EQ(text_of(of.x1, of.residual.view().reshaped({kRows, kN}), of.residual, of.gamma, {}),
              prefix + "x1 is [60, 96], x2 [60, 40]");
    EXPECT_EQ(text_of(of.x1, of.x2, of.x1, of.gamma, {}), prefix + "residual is [60, 96], expected 60 rows of 40");
    EXPECT_EQ(text_of(of.x1, of.x2, of.residual, of.x2, {}), prefix + "gamma is fp32 [96, 40], expected fp32 [40]");
    EXPECT_EQ(text_of(of.x1, of.x2, of.residual, of.gamma, {.reduce_op = "max"}),
              prefix + "reduce_op max; it may be sum");
    EXPECT_EQ(text_of(of.x1, of.x2, of.residual, of.gamma, {.bias = &of.x1.view()}),
              prefix + "bias is fp32 [60, 96], expected fp32 [40]");
    EXPECT_EQ(text_of(of.x1, of.x2, of.residual, of.gamma, {.antiquant_scale = &of.gamma.view()}),
              prefix + "antiquant_scale is for an int8 x2 with a real x1; they are fp32 and fp32");
    EXPECT_EQ(text_of(of.x1, of.x2, of.residual, of.gamma, {.dequant_scale = &of.gamma.view()}),
              prefix + "dequant_scale is for an int8 x1; it is fp32");
    const auto weight = int8s(ops, {kK, kN}, 1), wrong = int8s(ops, {kRows, kK}, 1);
    EXPECT_EQ(text_of(of.x1, weight, of.residual, of.gamma,
                      {.antiquant_scale = &of.gamma.view(), .antiquant_group_size = 33}),
              prefix + "antiquant_group_size 33; it is a multiple of 32 below k, which is 96");
    EXPECT_EQ(text_of(of.x1, weight, of.residual, of.gamma,
                      {.antiquant_scale = &of.gamma.view(), .antiquant_group_size = 32}),
              prefix + "antiquant_scale is [40] for x2 [96, 40] in 3 groups");
    EXPECT_EQ(text_of(wrong, weight, of.residual, of.gamma, {.dequant_scale = &of.residual.view()}),
              prefix + "dequant_scale is fp32 [2, 30, 40], expected 1 or n numbers in fp32 or bf16");
    const auto half = ops.random<kernels::fp16>({kRows, kN}, 1);
    EXPECT_EQ(text_of(half, ops.random<kernels::fp16>({kN, kN}, 1), half, of.gamma, {}),
              prefix + "residual is fp16; ranks add up fp32 and bf16");
    EXPECT_EQ(world.counter(core::CommOp::kAllreduce).calls, 0);
  });
}

}  // namespace
}  // namespace ms::ops
