// A column-parallel linear layer followed by a row-parallel one, against two whole products in fp64: outputs, and the
// gradients of input, weights and biases, for any cut over TP, at once or deferred.
#include "train/model/linear.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/reference/matmul.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

using reference::Array;
using Floats = std::vector<float>;

constexpr int64_t kSeq = 8, kBatch = 2, kTokens = kSeq * kBatch;
constexpr const char* kMlp = "decoder.layers.0.mlp.";

Floats random(int64_t n, uint64_t salt) { return test::RandomValues(salt).make<float>(n, 1.0F); }

Floats rows_of(const Floats& matrix, int64_t columns, int64_t begin, int64_t count) {
  return {matrix.begin() + begin * columns, matrix.begin() + (begin + count) * columns};
}
Floats columns_of(const Floats& matrix, int64_t columns, int64_t begin, int64_t count) {
  Floats part;
  for (int64_t row = 0; row < static_cast<int64_t>(matrix.size()) / columns; ++row) {
    const auto first = matrix.begin() + row * columns + begin;
    part.insert(part.end(), first, first + count);
  }
  return part;
}
Floats to_floats(const Array& values) { return {values.begin(), values.end()}; }

Array times(const Array& a, bool transpose_a, const Array& b, bool transpose_b, int64_t m, int64_t n, int64_t k) {
  return reference::matmul(a, transpose_a, b, transpose_b, m, n, k).value;
}
Array column_sums(const Array& matrix, int64_t columns) {
  Array sums(static_cast<size_t>(columns));
  for (size_t i = 0; i < matrix.size(); ++i) sums[i % static_cast<size_t>(columns)] += matrix[i];
  return sums;
}
void add_rows(Array& matrix, const Floats& row) {
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] += row[i % row.size()];
}

// hidden -> wide -> hidden.
struct Sizes {
  int64_t hidden, wide;
};

// Inputs, and what two whole products make of them.
struct Whole {
  explicit Whole(Sizes sizes)
      : x(random(kTokens * sizes.hidden, 1)),
        dy(random(kTokens * sizes.hidden, 2)),
        w1(random(sizes.wide * sizes.hidden, 3)),
        b1(random(sizes.wide, 4)),
        w2(random(sizes.hidden * sizes.wide, 5)),
        b2(random(sizes.hidden, 6)) {
    const auto [hidden, wide] = sizes;
    const Array dx_ = reference::to_double(x), dy_ = reference::to_double(dy);
    const Array first = reference::to_double(w1), second = reference::to_double(w2);
    Array middle = times(dx_, false, first, true, kTokens, wide, hidden);
    add_rows(middle, b1);
    Array sum = times(middle, false, second, true, kTokens, hidden, wide);
    add_rows(sum, b2);
    const Array dmiddle = times(dy_, false, second, false, kTokens, wide, hidden);
    y = to_floats(sum);
    dx = to_floats(times(dmiddle, false, first, false, kTokens, hidden, wide));
    dw1 = to_floats(times(dmiddle, true, dx_, false, wide, hidden, kTokens));
    dw2 = to_floats(times(dy_, true, middle, false, hidden, wide, kTokens));
    db1 = to_floats(column_sums(dmiddle, wide));
    db2 = to_floats(column_sums(dy_, hidden));
  }

  Floats x, dy, w1, b1, w2, b2;
  Floats y, dx, dw1, db1, dw2, db2;
};

void expect_near(const core::TensorView& seen, const Floats& expected, const char* what) {
  ASSERT_EQ(seen.size(), static_cast<int64_t>(expected.size())) << what;
  for (int64_t i = 0; i < seen.size(); ++i) {
    const float want = expected[static_cast<size_t>(i)];
    ASSERT_NEAR(seen.data<float>()[i], want, 2e-5F * std::abs(want) + 2e-4F) << what << ", element " << i;
  }
}

void fill(const core::TensorView& x, const Floats& values) {
  ASSERT_EQ(x.size(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), x.data<float>());
}

// One rank's part of the two layers, with the parameters of an MLP.
class Pair {
 public:
  Pair(Rank& rank, const test::TinyLayout& layout)
      : rank_(rank),
        layout_(layout),
        sizes_{rank.config.model.hidden_size, rank.config.model.ffn_hidden_size},
        whole_(sizes_),
        first_(*rank.state, *rank.parameters, std::string(kMlp) + "linear_fc1"),
        second_(*rank.state, *rank.parameters, std::string(kMlp) + "linear_fc2") {
    const auto [hidden, wide] = sizes_;
    fill(parameter("linear_fc1.weight").weight, rows_of(whole_.w1, hidden, me() * part(), part()));
    fill(parameter("linear_fc1.bias").weight, rows_of(whole_.b1, 1, me() * part(), part()));
    fill(parameter("linear_fc2.weight").weight, columns_of(whole_.w2, wide, me() * part(), part()));
    fill(parameter("linear_fc2.bias").weight, whole_.b2);
  }

  void check_forward() {
    const core::Tensor x = local(whole_.x);
    middle_ = first_.forward(x);
    ASSERT_EQ(middle_.shape(), (core::Dims{kSeq, kBatch, part()}));
    expect_near(second_.forward(middle_, nullptr), mine(whole_.y), "y");
    const core::Tensor residual = local(whole_.dy);
    Floats sum = mine(whole_.y);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += mine(whole_.dy)[i];
    const core::TensorView view = residual;
    expect_near(second_.forward(middle_, &view), sum, "y + residual");
    expect_near(residual, mine(whole_.dy), "the residual, which is only read");
  }

  // After check_forward().
  void backward(WeightGradients& weights) {
    core::Tensor dy = local(whole_.dy);
    core::Tensor dmiddle = second_.backward(dy, middle_.share(), weights);
    expect_near(dy, mine(whole_.dy), "dy, which is only read");
    expect_near(first_.backward(std::move(dmiddle), local(whole_.x), weights), mine(whole_.dx), "dx");
  }

  void check_gradients() {
    const auto [hidden, wide] = sizes_;
    expect_near(parameter("linear_fc1.weight").main_grad, rows_of(whole_.dw1, hidden, me() * part(), part()), "dw1");
    expect_near(parameter("linear_fc1.bias").main_grad, rows_of(whole_.db1, 1, me() * part(), part()), "db1");
    expect_near(parameter("linear_fc2.weight").main_grad, columns_of(whole_.dw2, wide, me() * part(), part()), "dw2");
    const core::TensorView bias = parameter("linear_fc2.bias").main_grad;
    if (layout_.sp) rank_.state->groups.tp.allreduce(bias);  // each rank has the sum over its part of the sequence
    expect_near(bias, whole_.db2, "db2");
  }

 private:
  Parameter& parameter(const char* name) { return rank_.parameters->at(std::string(kMlp) + name); }
  int64_t me() const { return rank_.state->tp_rank(); }
  int64_t part() const { return sizes_.wide / layout_.tp; }
  // This rank's positions.
  Floats mine(const Floats& rows) const {
    const int64_t tokens = layout_.sp ? kTokens / layout_.tp : kTokens;
    return rows_of(rows, sizes_.hidden, layout_.sp ? me() * tokens : 0, tokens);
  }
  core::Tensor local(const Floats& rows) {
    const int64_t seq = layout_.sp ? kSeq / layout_.tp : kSeq;
    core::Tensor result(rank_.arena, core::DType::kFp32, {seq, kBatch, sizes_.hidden}, core::MemoryTag::kAct);
    fill(result, mine(rows));
    return result;
  }

  Rank& rank_;
  const test::TinyLayout& layout_;
  Sizes sizes_;
  Whole whole_;
  ColumnParallelLinear first_;
  RowParallelLinear second_;
  core::Tensor middle_;
};

void for_each_cut(const std::function<void(Rank&, Pair&)>& check) {
  const test::TinyLayout layouts[] = {{.tp = 1},
                                      {.tp = 2},
                                      {.tp = 4},
                                      {.tp = 2, .sp = true},
                                      {.tp = 4, .sp = true},
                                      {.tp = 2, .overlap = "tp"},
                                      {.tp = 4, .sp = true, .overlap = "tp"},
                                      {.tp = 2, .overlap = "coc4"},
                                      {.tp = 2, .sp = true, .overlap = "coc4"},
                                      {.tp = 4, .sp = true, .overlap = "coc2"}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.model.add_bias_linear = true;
    config.model.swiglu = false;
    test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Pair pair(rank, layout);
      check(rank, pair);
    });
  }
}

TEST(Linear, APairEqualsTheWholeProductsAndTheirGradients) {
  for_each_cut([](Rank&, Pair& pair) {
    pair.check_forward();
    WeightGradients at_once;
    pair.backward(at_once);
    pair.check_gradients();
  });
}

TEST(Linear, GradientsAddUp) {
  for_each_cut([](Rank& rank, Pair& pair) {
    pair.check_forward();
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      WeightGradients at_once;
      pair.backward(at_once);
    }
    for (float& sum : rank.parameters->grads().elements<float>()) sum /= 2;
    pair.check_gradients();
  });
}

TEST(Linear, DeferredGradientsOfWeightsAreTheSameBitsLater) {
  for_each_cut([](Rank& rank, Pair& pair) {
    pair.check_forward();
    WeightGradients at_once;
    pair.backward(at_once);
    const auto grads = rank.parameters->grads().elements<float>();
    const Floats expected(grads.begin(), grads.end());
    rank.parameters->zero_grads();
    WeightGradients later;
    for (int use = 0; use < 2; ++use) {  // the second one uses the room of the first
      rank.parameters->zero_grads();
      const int64_t held = rank.arena.current_bytes(core::MemoryTag::kAct);
      later.defer();
      pair.backward(later);
      EXPECT_EQ(std::accumulate(grads.begin(), grads.end(), 0.0F), 0) << "nothing is added before run()";
      EXPECT_GT(rank.arena.current_bytes(core::MemoryTag::kAct), held) << "the operands are kept";
      later.run();
      EXPECT_EQ(rank.arena.current_bytes(core::MemoryTag::kAct), held) << "and freed";
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), grads.begin()));
    }
  });
}

}  // namespace
}  // namespace ms::train
