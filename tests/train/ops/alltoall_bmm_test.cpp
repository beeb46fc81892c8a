#include "train/ops/alltoall_bmm.h"

#include "tests/reference/activation.h"
#include "tests/reference/matmul.h"
#include "tests/support/thrown.h"
#include "tests/train/ops/comm_ranks.h"

namespace ms::ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;
using kernels::Activation;
using reference::Array;

constexpr int64_t kExperts = 3, kC = 8, kH = 24, kM = 20;  // experts and columns of M on each rank

struct Grid {
  int ep, tp;
  int shard_type;
  int ranks() const { return ep * tp; }
  int rank(int e, int t) const { return e * tp + t; }
  int64_t rows() const { return shard_type == 0 ? kC : kC / tp; }     // of an expert's tokens, on a rank
  int64_t columns() const { return shard_type == 0 ? kH / tp : kH; }  // the same
  int64_t all_rows() const { return ep * kC; }
};

std::vector<Grid> grids() {
  std::vector<Grid> all;
  const std::vector<std::pair<int, int>> sizes = {{2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}};
  for (const int shard_type : {0, 1}) {
    for (const auto& [ep, tp] : sizes) all.push_back({ep, tp, shard_type});
  }
  return all;
}

struct Groups {
  Communicator ep, tp;
};

void on_grid(const Grid& grid, const std::function<void(Ops& ops, Groups& groups, int e, int t)>& body) {
  test::run_thread_ranks(grid.ranks(), [&](core::Endpoint& endpoint) {
    const int e = endpoint.rank() / grid.tp, t = endpoint.rank() % grid.tp;
    std::vector<int> ep_ranks, tp_ranks;
    for (int i = 0; i < grid.ep; ++i) ep_ranks.push_back(grid.rank(i, t));
    for (int i = 0; i < grid.tp; ++i) tp_ranks.push_back(grid.rank(e, i));
    Groups groups{{endpoint, "ep", ep_ranks, 1}, {endpoint, "tp", tp_ranks, 2}};
    Ops ops(2);
    ops.context.deterministic = true;
    body(ops, groups, e, t);
  });
}

template <class T>
class AlltoallBmm : public ::testing::Test {
 protected:
  static constexpr double near() { return std::is_same_v<T, float> ? 1e-6 : 2e-2; }
  static void expect_close(const TensorView& seen, const Array& want, const char* what) {
    expect_near(seen, want, near() * reference::max_abs(want), near(), what);
  }
  // Of each rank its own. As tokens lie where they come from, and as the experts read them.
  static Tensor tokens(Ops& ops, const Grid& grid, int rank) {
    return ops.random<T>({grid.ep * kExperts, grid.rows(), grid.columns()}, salt_of(rank, 1));
  }
  static Tensor expert_rows(Ops& ops, const Grid& grid, int rank) {
    return ops.random<T>({kExperts, grid.all_rows(), kM}, salt_of(rank, 2));
  }
  static Tensor weight(Ops& ops, int rank) { return ops.random<T>({kExperts, kH, kM}, salt_of(rank, 3), 0.3F); }
  static Tensor transposed(Ops& ops, int rank) {  // [experts, kM, kH]
    const Tensor w = weight(ops, rank);
    Tensor turned(ops.arena, w.dtype(), {kExperts, kM, kH}, core::MemoryTag::kTmp);
    for (int64_t i = 0; i < w.size(); ++i) {
      const int64_t expert = i / (kH * kM), row = i / kM % kH, column = i % kM;
      turned.data<T>()[(expert * kM + column) * kH + row] = w.data<T>()[i];
    }
    return turned;
  }
  static Tensor bias(Ops& ops, int rank, int64_t width) { return ops.random<T>({kExperts, width}, salt_of(rank, 4)); }

  // What the experts of ep rank e read, [experts, ep kC, kH].
  static Array gathered(const Grid& grid, int e) {
    Ops ops;
    Array all(static_cast<size_t>(kExperts * grid.all_rows() * kH));
    for (int from = 0; from < grid.ep; ++from) {
      for (int t = 0; t < grid.tp; ++t) {
        const Array x = array(tokens(ops, grid, grid.rank(from, t)));
        for (int64_t expert = 0; expert < kExperts; ++expert) {
          for (int64_t row = 0; row < grid.rows(); ++row) {
            for (int64_t column = 0; column < grid.columns(); ++column) {
              const int64_t source = ((e * kExperts + expert) * grid.rows() + row) * grid.columns() + column;
              all[static_cast<size_t>(place(grid, expert, from, t, row, column))] = x[static_cast<size_t>(source)];
            }
          }
        }
      }
    }
    return all;
  }
  // Where an element that tp rank t has for ep rank `of` is in [experts, ep kC, kH].
  static int64_t place(const Grid& grid, int64_t expert, int of, int t, int64_t row, int64_t column) {
    const int64_t of_c = grid.shard_type == 0 ? row : t * grid.rows() + row;
    const int64_t of_h = grid.shard_type == 0 ? t * grid.columns() + column : column;
    return ((expert * grid.ep + of) * kC + of_c) * kH + of_h;
  }
  // [experts, rows, k] times [experts, k, n], and a bias [experts, n].
  static Array products(const Array& x, const Array& w, const Array& b, int64_t rows, int64_t k, int64_t n) {
    Array all;
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      Array y = reference::matmul({x.begin() + expert * rows * k, x.begin() + (expert + 1) * rows * k}, false,
                                  {w.begin() + expert * k * n, w.begin() + (expert + 1) * k * n}, false, rows, n, k)
                    .value;
      for (size_t i = 0; i < y.size() && !b.empty(); ++i) {
        y[i] += b[static_cast<size_t>(expert * n) + i % static_cast<size_t>(n)];
      }
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
};
using SummedTypes = ::testing::Types<float, kernels::bf16>;
TYPED_TEST_SUITE(AlltoallBmm, SummedTypes);

TYPED_TEST(AlltoallBmm, AlltoallAllgatherBmmGivesTheExpertsAllTokensInOrder) {
  for (const Grid& grid : grids()) {
    on_grid(grid, [&](Ops& ops, Groups& groups, int e, int t) {
      const int rank = grid.rank(e, t);
      const Tensor x = this->tokens(ops, grid, rank), w = this->weight(ops, rank), b = this->bias(ops, rank, kM);
      const Array tokens = this->gathered(grid, e),
                  want = this->products(tokens, array(w), array(b), grid.all_rows(), kH, kM);
      const auto plain =
          npu_alltoall_allgather_bmm(ops.context, x, w, groups.ep, groups.tp,
                                     {.bias = &b.view(), .shard_type = grid.shard_type, .need_allgather_out = true});
      EXPECT_EQ(plain.y1.shape(), (core::Dims{kExperts, grid.all_rows(), kM}));
      EXPECT_EQ(plain.y2.shape(), (core::Dims{kExperts, grid.all_rows(), kH}));
      EXPECT_EQ(array(plain.y2), tokens);
      EXPECT_FALSE(plain.y3.defined());
      this->expect_close(plain.y1, want, "y1");
    });
  }
}

TYPED_TEST(AlltoallBmm, AlltoallAllgatherBmmActivatesAndKeepsWhatWasAskedFor) {
  const Grid grid{2, 2, 1};
  const std::vector<std::pair<const char*, Activation>> names = {{"GELU", Activation::kGelu},
                                                                 {"Silu", Activation::kSilu},
                                                                 {"Relu", Activation::kRelu},
                                                                 {"FastGELU", Activation::kFastGelu}};
  on_grid(grid, [&](Ops& ops, Groups& groups, int e, int t) {
    const int rank = grid.rank(e, t);
    const Tensor x = this->tokens(ops, grid, rank), w = this->weight(ops, rank);
    const auto b = ops.random<float>({kExperts, 1, kM}, salt_of(rank, 4));  // fp32 whatever x is
    const Array before = this->products(this->gathered(grid, e), array(w), array(b), grid.all_rows(), kH, kM);
    for (const auto& [name, kind] : names) {
      Array want;
      for (const double value : before) want.push_back(reference::activation(kind, value));
      for (const bool keeps : {false, true}) {
        const auto seen = npu_alltoall_allgather_bmm(
            ops.context, x, w, groups.ep, groups.tp,
            {.bias = &b.view(), .shard_type = 1, .act_type = name, .need_activation_feature = keeps});
        this->expect_close(seen.y1, want, name);
        EXPECT_FALSE(seen.y2.defined());
        EXPECT_EQ(seen.y3.defined(), keeps);
        if (keeps) this->expect_close(seen.y3, before, "y3");
      }
    }
  });
}

TYPED_TEST(AlltoallBmm, BmmReducescatterAlltoallReturnsTheSumsToTheTokens) {
  for (const Grid& grid : grids()) {
    // Of each ep rank: the sum over its tp ranks, [experts, ep kC, kH].
    std::vector<Array> sums;
    Ops of_all;
    for (int e = 0; e < grid.ep; ++e) {
      Array sum(static_cast<size_t>(kExperts * grid.all_rows() * kH));
      for (int t = 0; t < grid.tp; ++t) {
        const int rank = grid.rank(e, t);
        const Array own = this->products(array(this->expert_rows(of_all, grid, rank)),
                                         array(this->transposed(of_all, rank)), {}, grid.all_rows(), kM, kH);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
      }
      sums.push_back(sum);
    }
    on_grid(grid, [&](Ops& ops, Groups& groups, int e, int t) {
      const int rank = grid.rank(e, t);
      const Tensor b = this->bias(ops, rank, grid.columns());
      const Tensor seen =
          npu_bmm_reducescatter_alltoall(ops.context, this->expert_rows(ops, grid, rank), this->transposed(ops, rank),
                                         groups.ep, groups.tp, {.bias = &b.view(), .shard_type = grid.shard_type});
      EXPECT_EQ(seen.shape(), (core::Dims{grid.ep * kExperts, grid.rows(), grid.columns()}));
      Array want;
      for (int64_t i = 0; i < seen.size(); ++i) {
        const int64_t all = i / grid.columns() / grid.rows(), row = i / grid.columns() % grid.rows(),
                      column = i % grid.columns(), expert = all % kExperts;
        const auto of = static_cast<int>(all / kExperts);
        const Array of_bias = array(this->bias(ops, grid.rank(of, t), grid.columns()));
        want.push_back(
            sums[static_cast<size_t>(of)][static_cast<size_t>(this->place(grid, expert, e, t, row, column))] +
            of_bias[static_cast<size_t>(expert * grid.columns() + column)]);
      }
      this->expect_close(seen, want, "y");
    });
  }
}

// <A x, y> = <x, A' y> over all ranks.
TEST(AlltoallBmmAdjoint, EachIsTheOthers) {
  for (const Grid& grid : grids()) {
    on_grid(grid, [&](Ops& ops, Groups& groups, int e, int t) {
      const int rank = grid.rank(e, t);
      const auto x = ops.random<float>({grid.ep * kExperts, grid.rows(), grid.columns()}, salt_of(rank, 1)),
                 y = ops.random<float>({kExperts, grid.all_rows(), kM}, salt_of(rank, 2)),
                 w = ops.random<float>({kExperts, kH, kM}, salt_of(rank, 3));
      std::vector<float> turned(static_cast<size_t>(w.size()));
      for (int64_t i = 0; i < w.size(); ++i) {
        turned[static_cast<size_t>((i / (kH * kM) * kM + i % kM) * kH + i / kM % kH)] = w.data<float>()[i];
      }
      const auto ax =
          npu_alltoall_allgather_bmm(ops.context, x, w, groups.ep, groups.tp, {.shard_type = grid.shard_type});
      const auto aty = npu_bmm_reducescatter_alltoall(ops.context, y, ops.tensor(turned, {kExperts, kM, kH}), groups.ep,
                                                      groups.tp, {.shard_type = grid.shard_type});
      double sums[] = {reference::dot(array(ax.y1), array(y)), reference::dot(array(x), array(aty)),
                       reference::dot(array(ax.y1), array(ax.y1))};
      groups.ep.allreduce(std::span<double>(sums));
      groups.tp.allreduce(std::span<double>(sums));
      EXPECT_NEAR(sums[0], sums[1], 1e-6 * sums[2]);
      EXPECT_GT(std::abs(sums[0]), 1e-4 * sums[2]) << "says nothing";
    });
  }
}

TEST(AlltoallBmmMessages, AreThoseOfTheTokensAndBesideProducts) {
  const Grid grid{2, 2, 1};
  on_grid(grid, [&](Ops& ops, Groups& groups, int e, int t) {
    const int rank = grid.rank(e, t);
    const auto x = ops.random<float>({grid.ep * kExperts, grid.rows(), kH}, salt_of(rank, 1)),
               w = ops.random<float>({kExperts, kH, kM}, salt_of(rank, 3)),
               back = ops.random<float>({kExperts, kM, kH}, salt_of(rank, 4));
    const auto hidden = npu_alltoall_allgather_bmm(ops.context, x, w, groups.ep, groups.tp, {.shard_type = 1});
    EXPECT_EQ(groups.ep.counter(core::CommOp::kAlltoall).calls, kExperts);
    EXPECT_EQ(groups.ep.counter(core::CommOp::kAlltoall).payload_bytes, x.size_bytes());
    EXPECT_EQ(groups.tp.counter(core::CommOp::kAllgather).calls, kExperts);
    EXPECT_EQ(groups.tp.counter(core::CommOp::kAllgather).payload_bytes, grid.tp * x.size_bytes());
    npu_bmm_reducescatter_alltoall(ops.context, hidden.y1, back, groups.ep, groups.tp, {.shard_type = 1});
    EXPECT_EQ(groups.ep.counter(core::CommOp::kAlltoall).payload_bytes, 2 * x.size_bytes());
    EXPECT_EQ(groups.tp.counter(core::CommOp::kReduceScatter).calls, kExperts);
    EXPECT_EQ(groups.tp.counter(core::CommOp::kReduceScatter).payload_bytes, grid.tp * x.size_bytes());
  });
  // Both ranks in one group, the other has one. On a link that carries one message after the other, in 19 ms each.
  const auto beside = [](const char* operation, bool forward, bool is_tp) {
    const auto body = [&](Ops& ops, Communicator& world) {
      Communicator alone(world.endpoint(), "alone", {world.rank()}, 1);
      Communicator &ep = is_tp ? alone : world, &tp = is_tp ? world : alone;
      if (forward) {
        const auto x = ops.random<float>({ep.size() * kExperts, kC, kH}, 1),
                   w = ops.random<float>({kExperts, kH, kM}, 2);
        npu_alltoall_allgather_bmm(ops.context, x, w, ep, tp, {.shard_type = 1});
      } else {
        const auto x = ops.random<float>({kExperts, 2 * kC, kM}, 1), w = ops.random<float>({kExperts, kM, kH}, 2);
        npu_bmm_reducescatter_alltoall(ops.context, x, w, ep, tp, {.shard_type = 1});
      }
    };
    return messages_beside(2, operation, "matmul", body, {.bytes_per_s = 4e4});
  };
  EXPECT_GE(beside("alltoall", true, false), 1);  // of the next experts, beside the product of one
  EXPECT_GE(beside("allgather", true, true), 1);
  EXPECT_GE(beside("reduce_scatter", false, true), 1);  // of an expert, beside the product of the next one
  EXPECT_GE(beside("alltoall", false, false), 1);
}

TEST(AlltoallBmmContract, RefusesWhatDoesNotFitInOneLine) {
  on_grid({1, 2, 0}, [](Ops& ops, Groups& groups, int, int) {
    const auto x = ops.random<float>({3, 4, 6}, 1), w = ops.random<float>({3, 12, 5}, 2);
    const auto forward = [&](const TensorView& weight, const AlltoallAllgatherBmmOptions& options) {
      const test::Thrown thrown =
          test::thrown_by([&] { npu_alltoall_allgather_bmm(ops.context, x, weight, groups.ep, groups.tp, options); });
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
      return thrown.text;
    };
    const auto back = [&](const TensorView& weight, const BmmReducescatterAlltoallOptions& options) {
      const test::Thrown thrown = test::thrown_by(
          [&] { npu_bmm_reducescatter_alltoall(ops.context, x, weight, groups.ep, groups.tp, options); });
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
      return thrown.text;
    };
    const std::string name = "npu_alltoall_allgather_bmm: ", other = "npu_bmm_reducescatter_alltoall: ";
    EXPECT_EQ(forward(w, {.shard_type = 1}),
              name + "x is [3, 4, 6], weight [3, 12, 5] with 1 ep and 2 tp ranks and shard_type 1");
    EXPECT_EQ(forward(w, {.shard_type = 2}), name + "shard_type 2; it may be 0 or 1");
    EXPECT_EQ(forward(w, {.act_type = "swiglu"}),
              name + "act_type swiglu; it may be None, gelu, silu, relu or fastgelu");
    EXPECT_EQ(forward(w, {.bias = &x.view()}), name + "bias is fp32 [3, 4, 6], expected [3, 5] in x's dtype or fp32");
    EXPECT_EQ(forward(ops.zeros({2, 12, 5}), {}),
              name + "x is [3, 4, 6], weight [2, 12, 5] with 1 ep and 2 tp ranks and shard_type 0");
    EXPECT_EQ(back(ops.zeros({3, 6, 5}), {}),
              other + "x is [3, 4, 6], weight [3, 6, 5] with 1 ep and 2 tp ranks and shard_type 0");
    EXPECT_EQ(back(ops.zeros({3, 6, 4}), {.bias = &x.view()}),
              other + "bias is fp32 [3, 4, 6], expected [3, 2] in x's dtype or fp32");
    EXPECT_EQ(back(ops.zeros({3, 24}), {}), other + "x is [3, 4, 6], weight [3, 24], expected three axes each");
    EXPECT_EQ(groups.tp.counter(core::CommOp::kAllgather).calls, 0);
  });
}

}  // namespace
}  // namespace ms::ops
