#include "train/model/row_parallel_linear.h"

#include <gtest/gtest.h>

#include "tests/reference/matmul.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"
#include "train/ops/linear.h"
#include "train/parallel/mappings.h"

namespace ms::train {
namespace {

using reference::Array;
using Floats = std::vector<float>;

constexpr int64_t kSeq = 6, kBatch = 2, kTokens = kSeq * kBatch;

Floats random(int64_t n, uint64_t salt) { return test::RandomValues(salt).make<float>(n, 1.0F); }

// Columns [begin, begin + count) of a matrix.
Floats columns_of(const Floats& matrix, int64_t columns, int64_t begin, int64_t count) {
  Floats part;
  for (size_t at = static_cast<size_t>(begin); at < matrix.size(); at += static_cast<size_t>(columns)) {
    part.insert(part.end(), matrix.begin() + static_cast<std::ptrdiff_t>(at),
                matrix.begin() + static_cast<std::ptrdiff_t>(at) + count);
  }
  return part;
}
Floats rows_of(const Floats& matrix, int64_t columns, int64_t begin, int64_t count) {
  return {matrix.begin() + begin * columns, matrix.begin() + (begin + count) * columns};
}
void fill(const core::TensorView& x, const Floats& values) {
  ASSERT_EQ(x.size(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), x.data<float>());
}

// x [seq, batch, in] through a column-parallel layer followed by a row-parallel one, compared with two whole products:
// bias and residual are added once for any tp, and each rank has its part of the sequence with SP.
void expect_the_whole_products(const test::TinyLayout& layout) {
  SCOPED_TRACE(layout.name());
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.add_bias_linear = true;
  const int64_t hidden = config.model.hidden_size, ffn = config.model.ffn_hidden_size;
  const Floats x = random(kTokens * hidden, 1), fc1 = random(ffn * hidden, 2), fc2 = random(hidden * ffn, 3);
  const Floats b = random(hidden, 4), r = random(kTokens * hidden, 5);
  const auto wide =
      reference::matmul(reference::to_double(x), false, reference::to_double(fc1), true, kTokens, ffn, hidden);
  const auto product = reference::matmul(wide.value, false, reference::to_double(fc2), true, kTokens, hidden, ffn);
  // Error of two products in sequence: the first one's error is multiplied by the second's weights.
  Array bound = reference::matmul(
                    wide.magnitude, false,
                    [&] {
                      Array magnitudes = reference::to_double(fc2);
                      for (double& value : magnitudes) value = std::abs(value);
                      return magnitudes;
                    }(),
                    true, kTokens, hidden, ffn)
                    .value;
  for (double& value : bound) value *= static_cast<double>(hidden + ffn + 4) * reference::kFp32;

  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    RankState& state = *rank.state;
    const int64_t tp = layout.tp, part = ffn / tp, me = state.tp_rank();
    const int64_t tokens = layout.sp ? kTokens / tp : kTokens, first = layout.sp ? me * tokens : 0;
    const core::Dims local = {tokens / kBatch, kBatch, hidden};
    const auto tensor = [&](const Floats& values, const core::Dims& shape) {
      core::Tensor result(rank.arena, core::DType::kFp32, shape, core::MemoryTag::kTmp);
      fill(result, values);
      return result;
    };
    Parameter& weight = rank.parameters->at("decoder.layers.0.mlp.linear_fc2.weight");
    Parameter& bias = rank.parameters->at("decoder.layers.0.mlp.linear_fc2.bias");
    ASSERT_EQ(weight.weight.shape(), (core::Dims{hidden, part}));
    fill(weight.weight, columns_of(fc2, ffn, me * part, part));
    fill(bias.weight, b);
    const core::Tensor residual = tensor(rows_of(r, hidden, first, tokens), local);
    const core::TensorView residual_view = residual;

    core::Tensor gathered;
    const core::Tensor mine = tensor(rows_of(x, hidden, first, tokens), local);
    const core::TensorView full = enter_column_parallel(state, mine, gathered);
    const core::Tensor column = tensor(rows_of(fc1, hidden, me * part, part), {part, hidden});
    const core::Tensor middle = ops::linear(state.ops, full, column);
    ASSERT_EQ(middle.shape(), (core::Dims{kSeq, kBatch, part}));

    for (const bool biased : {false, true}) {
      for (const bool added : {false, true}) {
        SCOPED_TRACE(core::cat(biased ? "biased " : "", added ? "with residual" : ""));
        const core::Tensor y =
            row_parallel_linear(state, middle, weight, biased ? &bias : nullptr, added ? &residual_view : nullptr);
        ASSERT_EQ(y.shape(), local);
        for (int64_t i = 0; i < y.size(); ++i) {
          const auto at = static_cast<size_t>(first * hidden + i);
          double want = product.value[at], rounded = bound[at];
          if (biased) want += b[at % static_cast<size_t>(hidden)];
          if (added) want += r[at];
          rounded += 3 * reference::kFp32 * (std::abs(product.value[at]) + 2);
          ASSERT_NEAR(y.data<float>()[i], want, rounded) << "element " << at << " on rank " << me;
        }
      }
    }
    const Floats kept = rows_of(r, hidden, first, tokens);
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), residual.data<float>())) << "it is only read";
  });
}

TEST(RowParallelLinear, AfterAColumnParallelLayerEqualsTheWholeProduct) {
  for (const int tp : {1, 2, 4}) expect_the_whole_products({.tp = tp});
  expect_the_whole_products({.tp = 2, .sp = true});
}

}  // namespace
}  // namespace ms::train
