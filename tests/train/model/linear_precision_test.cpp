// The three products of a linear layer against fp64, in each precision that the configuration can ask for.
#include "train/model/linear_precision.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "core/error.h"
#include "tests/reference/matmul.h"
#include "tests/train/model/rank.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

using core::DType;
using ops::array;
using ops::WeightGradientSum;

constexpr int64_t kTokens = 24;

double roundoff_of(DType type) {
  return type == DType::kFp32 ? reference::roundoff<float>() : reference::roundoff<kernels::bf16>();
}

// The first linear_fc1 of a model on one rank, and operands of its products.
class Layer {
 public:
  explicit Layer(Rank& rank)
      : rank_(rank),
        weight(rank.parameters->at("decoder.layers.0.mlp.linear_fc1.weight")),
        precision(*rank.state, weight),
        x(random({kTokens, in()}, 1)),
        dy(random({kTokens, out()}, 2)) {
    ops::cast_into(rank.ops, random({out(), in()}, 3), weight.weight);
    rank.parameters->note_weight_change();
    rank.parameters->zero_grads();
  }

  int64_t in() const { return weight.weight.dim(1); }
  int64_t out() const { return weight.weight.dim(0); }
  core::Tensor random(const core::Dims& shape, uint64_t salt) {
    core::Tensor values(rank_.arena, DType::kFp32, shape, core::MemoryTag::kTmp);
    std::ranges::copy(test::RandomValues(salt).make<float>(values.size()), values.data<float>());
    return ops::cast(rank_.ops, values, weight.weight.dtype());
  }

 private:
  Rank& rank_;

 public:
  Parameter& weight;
  LinearPrecision precision;
  core::Tensor x, dy;
};

void with_layer(const std::function<void(TrainerConfig&)>& change, const std::function<void(Rank&, Layer&)>& check) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  change(config);
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    rank.ops.deterministic = true;  // packed copies change no bit then
    Layer layer(rank);
    check(rank, layer);
  });
}

// storage: roundoff of what the product was rounded to.
void expect_product(const core::TensorView& seen, const reference::Matmul& want, int64_t k, double storage,
                    const char* what) {
  const reference::Array got = array(seen);
  ASSERT_EQ(got.size(), want.value.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound =
        static_cast<double>(k + 2) * reference::kFp32 * want.magnitude[i] + storage * std::abs(want.value[i]);
    ASSERT_NEAR(got[i], want.value[i], bound) << what << " at " << i;
  }
}

TEST(LinearPrecision, ProductsAreThoseOfTheDefinition) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "bf16" : "fp32");
    with_layer([&](TrainerConfig& config) { config.training.bf16 = bf16; },
               [&](Rank&, Layer& layer) {
                 const DType type = bf16 ? DType::kBf16 : DType::kFp32;
                 const int64_t in = layer.in(), out = layer.out();
                 EXPECT_EQ(layer.precision.operands(), type);
                 EXPECT_EQ(layer.precision.weight_gradient_sum(), WeightGradientSum::kInProduct);
                 const auto x = array(layer.x), dy = array(layer.dy), w = array(layer.weight.weight);
                 const auto y = reference::matmul(x, false, w, true, kTokens, out, in);
                 const core::Tensor rounded = layer.precision.forward(layer.x, {});
                 EXPECT_EQ(rounded.dtype(), type);
                 expect_product(rounded, y, in, roundoff_of(type), "y");
                 const core::Tensor logits = layer.precision.forward_fp32(layer.x);
                 EXPECT_EQ(logits.dtype(), DType::kFp32);
                 expect_product(logits, y, in, reference::kFp32, "y in fp32");
                 const core::Tensor dx = layer.precision.backward_input(layer.dy);
                 EXPECT_EQ(dx.dtype(), type);
                 expect_product(dx, reference::matmul(dy, false, w, false, kTokens, in, out), out, roundoff_of(type),
                                "dx");
                 auto twice = reference::matmul(dy, true, x, false, out, in, kTokens);
                 for (reference::Array* values : {&twice.value, &twice.magnitude}) {
                   for (double& value : *values) value *= 2;
                 }
                 for (int use = 0; use < 2; ++use) layer.precision.backward_weight(layer.x, layer.dy);
                 expect_product(layer.weight.main_grad, twice, kTokens, 2 * reference::kFp32, "dw");
               });
  }
}

// --no-gradient-accumulation-fusion: what is added has been rounded to bf16.
TEST(LinearPrecision, AnUnfusedGradientIsRoundedBeforeItIsAdded) {
  with_layer(
      [](TrainerConfig& config) {
        config.training.bf16 = true;
        config.training.gradient_accumulation_fusion = false;
      },
      [](Rank& rank, Layer& layer) {
        EXPECT_EQ(layer.precision.weight_gradient_sum(), WeightGradientSum::kRounded);
        layer.precision.backward_weight(layer.x, layer.dy);
        const core::Tensor rounded = ops::cast(rank.ops, layer.weight.main_grad, DType::kBf16);
        EXPECT_EQ(array(layer.weight.main_grad), array(rounded));
        expect_product(
            layer.weight.main_grad,
            reference::matmul(array(layer.dy), true, array(layer.x), false, layer.out(), layer.in(), kTokens), kTokens,
            roundoff_of(DType::kBf16), "dw");
      });
}

// --packed-weights: the same bits, from a copy that is made once, and again after a change of the weight.
TEST(LinearPrecision, PackedCopiesOfTheWeightAreReadAndChangeNoBit) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "bf16" : "fp32");
    std::optional<reference::Array> y, dx;
    for (const bool packed : {false, true}) {
      with_layer(
          [&](TrainerConfig& config) {
            config.training.bf16 = bf16;
            config.training.packed_weights = packed;
          },
          [&](Rank& rank, Layer& layer) {
            EXPECT_EQ(layer.precision.reads_packed_weight(), packed);
            if (!packed) {
              y = array(layer.precision.forward(layer.x, {}));
              dx = array(layer.precision.backward_input(layer.dy));
              return;
            }
            const bool exists =
                kernels::packed_format(bf16 ? kernels::GemmType::kBf16 : kernels::GemmType::kFp32, true).has_value();
            for (int64_t change = 1; change <= 2; ++change) {
              for (int use = 0; use < 2; ++use) EXPECT_EQ(array(layer.precision.forward(layer.x, {})), *y);
              EXPECT_EQ(array(layer.precision.backward_input(layer.dy)), *dx);
              EXPECT_EQ(layer.weight.packed->times_packed(), exists ? change : 0);
              rank.parameters->note_weight_change();
            }
          });
    }
  }
}

// Of products in parts (--use-ascend-coc): the bits of the whole one, from a copy that the parts share and that goes
// with them; of few rows, which are read in place, from none.
TEST(LinearPrecision, PartsShareAPackedCopyAndChangeNoBit) {
  for (const int64_t rows : {int64_t{80}, int64_t{16}}) {
    SCOPED_TRACE(rows);
    with_layer([](TrainerConfig&) {},
               [&](Rank& rank, Layer& layer) {
                 const core::Tensor x = layer.random({2 * rows, layer.in()}, 4);
                 const core::Tensor whole = layer.precision.forward(x, {});
                 const core::Tensor y(rank.arena, whole.dtype(), whole.shape(), core::MemoryTag::kAct);
                 const auto in_use = [&] { return rank.arena.current_bytes(core::MemoryTag::kTmp); };
                 const int64_t before = in_use();
                 {
                   LinearPrecision::Parts parts(layer.precision, rows);
                   for (const int64_t begin : {int64_t{0}, rows}) {
                     parts.forward_into(x.view().rows(begin, begin + rows), y.view().rows(begin, begin + rows), {});
                     const bool packs = rows > 64 && kernels::packed_format(kernels::GemmType::kFp32, true);
                     EXPECT_EQ(in_use() - before, packs ? layer.weight.weight.size_bytes() : 0);
                   }
                 }
                 EXPECT_EQ(in_use(), before);
                 EXPECT_EQ(array(y), array(whole));
               });
  }
}

TEST(LinearPrecision, RefusesOperandsOfAnotherType) {
  with_layer([](TrainerConfig& config) { config.training.bf16 = true; },
             [](Rank& rank, Layer& layer) {
               const core::Tensor x = ops::cast(rank.ops, layer.x, DType::kFp32);
               const core::Tensor dy = ops::cast(rank.ops, layer.dy, DType::kFp32);
               EXPECT_THROW(layer.precision.forward(x, {}), core::Error);
               EXPECT_THROW(layer.precision.forward_fp32(x), core::Error);
               EXPECT_THROW(layer.precision.backward_input(dy), core::Error);
               EXPECT_THROW(layer.precision.backward_weight(x, layer.dy), core::Error);
               EXPECT_THROW(layer.precision.backward_weight(layer.x, dy), core::Error);
             });
}

}  // namespace
}  // namespace ms::train
