#include "train/ops/lcal_coc.h"

#include "kernels/isa.h"
#include "tests/reference/matmul.h"
#include "tests/support/thrown.h"
#include "tests/train/ops/comm_ranks.h"
#include "train/ops/linear.h"
#include "train/ops/matmul.h"

namespace ms::ops::coc_ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;
using reference::Array;

constexpr int64_t kRows = 48, kK = 72, kN = 40;

template <class T>
class LcalCoc : public ::testing::Test {
 protected:
  static constexpr double near() { return std::is_same_v<T, float> ? 1e-6 : 2e-2; }
  // Of each rank its own; transposed: the same matrix, stored [n, k].
  static Tensor input1(Ops& ops, int rank, int64_t rows) { return ops.random<T>({rows, kK}, salt_of(rank, 1)); }
  static Tensor input2(Ops& ops, int rank, bool transposed) {
    Tensor x = ops.random<T>({kK, kN}, salt_of(rank, 2), 0.2F);
    if (!transposed) return x;
    Tensor turned(ops.arena, x.dtype(), {kN, kK}, core::MemoryTag::kTmp);
    for (int64_t i = 0; i < kK * kN; ++i) turned.data<T>()[i % kN * kK + i / kN] = x.data<T>()[i];
    return turned;
  }
  static Tensor bias(Ops& ops) { return ops.random<T>({1, kN}, 3); }
  static Tensor output(Ops& ops, int64_t rows, int64_t columns = kN) {
    return ops.random<T>({rows, columns}, 4);  // what is not written shows
  }
  // Rows of rank 0's input1, then of rank 1's, ..
  static Array gathered(int ranks, int64_t rows, int first = 0, int step = 1) {
    Ops ops;
    Array all;
    for (int i = 0; i < ranks; ++i) {
      const Array own = array(input1(ops, first + i * step, rows));
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  static Array product(const Array& left, int rank) {
    Ops ops;
    const auto rows = static_cast<int64_t>(left.size()) / kK;
    return reference::matmul(left, false, array(input2(ops, rank, false)), false, rows, kN, kK).value;
  }
  static Array with_bias(Array x) {
    Ops ops;
    const Array b = array(bias(ops));
    for (size_t i = 0; i < x.size(); ++i) x[i] += b[i % kN];
    return x;
  }
  static Array block(const Array& x, int64_t rows, int index) {
    return {x.begin() + index * rows * kN, x.begin() + (index + 1) * rows * kN};
  }
  static void expect_product(const TensorView& seen, const Array& want, const char* what) {
    expect_near(seen, want, near() * reference::max_abs(want), near(), what);
  }
  // Both layouts of input2, in one part and in three.
  template <class Body>
  static void for_options(Ops& ops, const Body& body) {
    const Tensor of_bias = bias(ops);
    for (const bool transposed : {false, true}) {
      for (const int64_t parts : {0, 1, 3}) {
        body(transposed, CocOptions{.bias = &of_bias.view(), .parts = parts});
      }
    }
  }
};
using SummedTypes = ::testing::Types<float, kernels::bf16>;
TYPED_TEST_SUITE(LcalCoc, SummedTypes);

TYPED_TEST(LcalCoc, PureMatmulIsTheProduct) {
  const Array want = this->with_bias(this->product(this->gathered(1, kRows), 0));
  Ops ops(2);
  this->for_options(ops, [&](bool transposed, const CocOptions& options) {
    const Tensor output = this->output(ops, kRows);
    pure_matmul(ops.context, this->input1(ops, 0, kRows), this->input2(ops, 0, transposed), output, options);
    this->expect_product(output, want, "output");
  });
}

TYPED_TEST(LcalCoc, MatmulAllReduceAddsUpTheRanks) {
  for (const int ranks : {1, 2, 4}) {
    Array sum(kRows * kN);
    for (int rank = 0; rank < ranks; ++rank) {
      const Array own = this->product(this->gathered(1, kRows, rank), rank);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
    const Array want = this->with_bias(sum);
    on_ranks(ranks, [&](Ops& ops, Communicator& world) {
      this->for_options(ops, [&](bool transposed, const CocOptions& options) {
        const Tensor output = this->output(ops, kRows);
        matmul_all_reduce(ops.context, this->input1(ops, world.rank(), kRows),
                          this->input2(ops, world.rank(), transposed), output, world, options);
        this->expect_product(output, want, "output");
      });
    });
  }
}

TYPED_TEST(LcalCoc, AllGatherMatmulHasTheRowsInTheOrderOfTheRanks) {
  for (const int ranks : {1, 2, 4}) {
    const int64_t own = kRows / ranks;
    const Array rows = this->gathered(ranks, own);
    on_ranks(ranks, [&](Ops& ops, Communicator& world) {
      const Array want = this->with_bias(this->product(rows, world.rank()));
      this->for_options(ops, [&](bool transposed, const CocOptions& options) {
        const Tensor x = this->input1(ops, world.rank(), own), w = this->input2(ops, world.rank(), transposed);
        const Tensor output = this->output(ops, kRows), second = this->output(ops, kRows),
                     comm_output = this->output(ops, kRows, kK);
        all_gather_matmul(ops.context, x, w, output, world, options);
        this->expect_product(output, want, "output");
        all_gather_matmul_v2(ops.context, x, w, second, comm_output, world, options);
        EXPECT_TRUE(same_bytes(second, output));
        EXPECT_EQ(array(comm_output), rows);
      });
    });
  }
}

TYPED_TEST(LcalCoc, MatmulReduceScatterLeavesEachRankItsBlock) {
  for (const int ranks : {1, 2, 4}) {
    Array sum(kRows * kN);
    for (int rank = 0; rank < ranks; ++rank) {
      const Array own = this->product(this->gathered(1, kRows, rank), rank);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    }
    on_ranks(ranks, [&](Ops& ops, Communicator& world) {
      const Array want = this->with_bias(this->block(sum, kRows / ranks, world.rank()));
      this->for_options(ops, [&](bool transposed, const CocOptions& options) {
        const Tensor output = this->output(ops, kRows / ranks);
        matmul_reduce_scatter(ops.context, this->input1(ops, world.rank(), kRows),
                              this->input2(ops, world.rank(), transposed), output, world, options);
        this->expect_product(output, want, "output");
      });
    });
  }
}

// A grid of ag x rs ranks, of which one of the two has neighbouring ranks.
struct Grid {
  int ag, rs;
  bool inner_is_ag;
  int ranks() const { return ag * rs; }
  int ag_index(int rank) const { return inner_is_ag ? rank % ag : rank / rs; }
  int rs_index(int rank) const { return inner_is_ag ? rank / ag : rank % rs; }
  int rank(int a, int r) const { return inner_is_ag ? r * ag + a : a * rs + r; }
};

TYPED_TEST(LcalCoc, AllGatherMatmulReduceScatterGathersInOneGroupAndAddsUpInTheOther) {
  for (const Grid& grid :
       {Grid{2, 1, true}, Grid{1, 2, true}, Grid{2, 2, true}, Grid{2, 2, false}, Grid{4, 1, false}}) {
    const int64_t own = kRows / grid.ag;
    test::run_thread_ranks(grid.ranks(), [&](core::Endpoint& endpoint) {
      const int a = grid.ag_index(endpoint.rank()), r = grid.rs_index(endpoint.rank());
      std::vector<int> ag_ranks, rs_ranks;
      for (int i = 0; i < grid.ag; ++i) ag_ranks.push_back(grid.rank(i, r));
      for (int i = 0; i < grid.rs; ++i) rs_ranks.push_back(grid.rank(a, i));
      Communicator ag(endpoint, "ag", ag_ranks, 0), rs(endpoint, "rs", rs_ranks, 1);
      Array sum(kRows * kN);
      for (int i = 0; i < grid.rs; ++i) {
        const int step = grid.ag == 1 ? 1 : grid.rank(1, i) - grid.rank(0, i);
        const Array part = this->product(this->gathered(grid.ag, own, grid.rank(0, i), step), grid.rank(a, i));
        for (size_t j = 0; j < sum.size(); ++j) sum[j] += part[j];
      }
      const Array want = this->with_bias(this->block(sum, kRows / grid.rs, r));
      Ops ops(2);
      this->for_options(ops, [&](bool transposed, const CocOptions& options) {
        const Tensor output = this->output(ops, kRows / grid.rs);
        all_gather_matmul_reduce_scatter(ops.context, this->input1(ops, endpoint.rank(), own),
                                         this->input2(ops, endpoint.rank(), transposed), output, {ag, rs}, options);
        this->expect_product(output, want, "output");
      });
    });
  }
}

// One product and one message, on the same kernels.
TYPED_TEST(LcalCoc, HasTheBitsOfTheOperatorsApart) {
  on_ranks(2, [&](Ops& ops, Communicator& world) {
    const Tensor whole = this->input1(ops, world.rank(), kRows), own = this->input1(ops, world.rank(), kRows / 2),
                 w = this->input2(ops, world.rank(), true), b = this->bias(ops);
    const Tensor sum = linear(ops.context, whole, w), rows = this->output(ops, kRows, kK),
                 scattered = this->output(ops, kRows / 2);
    world.reduce_scatter(sum, scattered);
    world.allreduce(sum);
    world.allgather(own, rows);
    const Tensor product = linear(ops.context, rows, w);
    for (const int64_t parts : {1, 2}) {
      const CocOptions options{.parts = parts};
      const Tensor reduced = this->output(ops, kRows), block = this->output(ops, kRows / 2),
                   of_rows = this->output(ops, kRows);
      matmul_all_reduce(ops.context, whole, w, reduced, world, options);
      matmul_reduce_scatter(ops.context, whole, w, block, world, options);
      all_gather_matmul(ops.context, own, w, of_rows, world, options);
      EXPECT_TRUE(same_bytes(reduced, sum));
      EXPECT_TRUE(same_bytes(block, scattered));
      EXPECT_TRUE(same_bytes(of_rows, product));
    }
  });
}

TEST(LcalCocContract, ASquareMatrixIsNotTransposedUnlessAsked) {
  Ops ops;
  const auto x = ops.random<float>({8, kK}, 1), w = ops.random<float>({kK, kK}, 2);
  const auto plain = ops.zeros({8, kK}), turned = ops.zeros({8, kK}), want = ops.zeros({8, kK});
  pure_matmul(ops.context, x, w, plain);
  matmul_into(ops.context, x, w, want);
  EXPECT_TRUE(same_bytes(plain, want));
  pure_matmul(ops.context, x, w, turned, {.transpose_input2 = true});
  matmul_into(ops.context, x, w, want, {.transpose_b = true});
  EXPECT_TRUE(same_bytes(turned, want));
}

using CocOperator = std::function<void(Ops& ops, Communicator& world, const CocOptions& options)>;

void run_reduce_scatter(Ops& ops, Communicator& world, const CocOptions& options) {
  const auto x = ops.random<float>({kRows, kK}, 1), w = ops.random<float>({kK, kN}, 2);
  matmul_reduce_scatter(ops.context, x, w, ops.zeros({kRows / world.size(), kN}), world, options);
}
void run_all_gather(Ops& ops, Communicator& world, const CocOptions& options) {
  const auto x = ops.random<float>({kRows / world.size(), kK}, 1), w = ops.random<float>({kK, kN}, 2);
  all_gather_matmul(ops.context, x, w, ops.zeros({kRows, kN}), world, options);
}
void run_all_reduce(Ops& ops, Communicator& world, const CocOptions& options) {
  const auto x = ops.random<float>({kRows, kK}, 1), w = ops.random<float>({kK, kN}, 2);
  matmul_all_reduce(ops.context, x, w, ops.zeros({kRows, kN}), world, options);
}

TEST(LcalCocMessages, AreAsManyAsPartsAndAsLargeAsOne) {
  on_ranks(2, [](Ops& ops, Communicator& world) {
    const auto expect = [&](const CocOperator& run, core::CommOp op, int64_t bytes) {
      for (const int64_t parts : {1, 4}) {
        world.reset_counters();
        run(ops, world, {.parts = parts});
        EXPECT_EQ(world.counter(op).calls, parts);
        EXPECT_EQ(world.counter(op).payload_bytes, bytes);
      }
    };
    expect(run_all_reduce, core::CommOp::kAllreduce, kRows * kN * 4);
    expect(run_reduce_scatter, core::CommOp::kReduceScatter, kRows * kN * 4);
    expect(run_all_gather, core::CommOp::kAllgather, kRows * kK * 4);
  });
}

TEST(LcalCocMessages, AreUnderWayBesideProducts) {
  const auto beside = [](const char* operation, const CocOperator& run, int64_t parts) {
    return messages_beside(2, operation, "matmul",
                           [&](Ops& ops, Communicator& world) { run(ops, world, {.parts = parts}); });
  };
  EXPECT_EQ(beside("allreduce", run_all_reduce, 1), 0);
  EXPECT_GE(beside("allreduce", run_all_reduce, 4), 2);
  EXPECT_EQ(beside("reduce_scatter", run_reduce_scatter, 1), 0);
  EXPECT_GE(beside("reduce_scatter", run_reduce_scatter, 4), 2);
  EXPECT_EQ(beside("allgather", run_all_gather, 1), 1);  // beside this rank's own rows
  EXPECT_GE(beside("allgather", run_all_gather, 4), 3);
}

// A large sum takes two rounds, of which kernels take the second. In one of several runs: ranks may be kept waiting.
TEST(LcalCocMessages, CompleteWithinProducts) {
  if (kernels::active_isa() == kernels::Isa::kScalar) GTEST_SKIP() << "products are not in panels";
  int64_t completed = 0;
  for (int run = 0; run < 10 && completed == 0; ++run) {
    const auto body = [](Ops& ops, Communicator& world) {
      const Tensor x = ops.zeros({1024, 512}), w = ops.zeros({512, 512}), output = ops.zeros({1024, 512});
      matmul_all_reduce(ops.context, x, w, output, world, {.parts = 2});
    };
    completed = beside_kernels(2, "allreduce", "matmul", body, {}).completed;
  }
  EXPECT_GT(completed, 0);
}

TEST(LcalCocContract, RefusesWhatDoesNotFitInOneLine) {
  on_ranks(2, [](Ops& ops, Communicator& world) {
    const auto x = ops.random<float>({5, kK}, 1), w = ops.random<float>({kK, kN}, 2), y = ops.zeros({5, kN});
    const auto text_of = [](const std::function<void()>& run) {
      const test::Thrown thrown = test::thrown_by(run);
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
      return thrown.text;
    };
    EXPECT_EQ(text_of([&] { matmul_reduce_scatter(ops.context, x, w, y, world); }),
              "matmul_reduce_scatter: 5 rows for 2 ranks");
    EXPECT_EQ(text_of([&] { all_gather_matmul(ops.context, x, w, y, world); }),
              "all_gather_matmul: output is [5, 40], expected [10, 40]");
    EXPECT_EQ(text_of([&] {
                all_gather_matmul_v2(ops.context, x, w, ops.zeros({10, kN}), y, world);
              }),
              "all_gather_matmul_v2: comm_output is [5, 40], expected [10, 72]");
    EXPECT_EQ(text_of([&] {
                all_gather_matmul_reduce_scatter(ops.context, x, w, ops.zeros({10, kN}), {world, world});
              }),
              "all_gather_matmul_reduce_scatter: output is [10, 40], expected [5, 40]");
    EXPECT_EQ(text_of([&] { matmul_all_reduce(ops.context, x, y, y, world); }),
              "matmul_all_reduce: input1 is [5, 72], input2 [5, 40], transposed");
    EXPECT_EQ(text_of([&] { matmul_all_reduce(ops.context, x, w, y, world, {.transpose_input2 = true}); }),
              "matmul_all_reduce: input1 is [5, 72], input2 [72, 40], transposed");
    EXPECT_EQ(text_of([&] { matmul_all_reduce(ops.context, x, w, y, world, {.bias = &x.view()}); }),
              "matmul_all_reduce: bias is [5, 72], expected [1, 40]");
    const auto half = ops.random<kernels::fp16>({5, kK}, 1);
    EXPECT_EQ(text_of([&] { matmul_all_reduce(ops.context, half, w, y, world); }),
              "matmul_all_reduce: input1 is fp16; ranks add up fp32 and bf16");
    EXPECT_EQ(text_of([&] {
                pure_matmul(ops.context, x, ops.random<kernels::bf16>({kK, kN}, 1), y);
              }),
              "pure_matmul: input2 is bf16, input1 fp32");
  });
}

}  // namespace
}  // namespace ms::ops::coc_ops
