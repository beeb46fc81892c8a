#include "train/ops/grouped_mat_mul_all_reduce.h"

#include "tests/reference/matmul.h"
#include "tests/support/thrown.h"
#include "tests/train/ops/comm_ranks.h"
#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/ops/matmul.h"

namespace ms::ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;
using reference::Array;

// Rows, k and n of each group; the third is empty.
struct Group {
  int64_t m, k, n;
};
using Groups = std::vector<Group>;
const Groups kUneven = {{20, 24, 16}, {33, 48, 40}, {0, 8, 24}, {7, 56, 16}};
const Groups kOneK = {{20, 24, 16}, {33, 24, 40}, {0, 24, 24}, {7, 24, 16}};
const Groups kOneN = {{20, 24, 40}, {33, 48, 40}, {0, 8, 40}, {7, 56, 40}};
const Groups kOneKAndN = {{20, 24, 40}, {33, 24, 40}, {0, 24, 40}, {7, 24, 40}};
const std::vector<int64_t> kEnds = {20, 53, 53, 60};

// Groups that split_item allows.
const Groups& groups_of(int split_item) {
  const Groups* const all[] = {&kUneven, &kOneK, &kOneN, &kOneKAndN};
  return *all[split_item];
}

// What a rank passes, one tensor per group, and the rows of x as one tensor where all have one k.
template <class T>
struct Lists {
  Lists(Ops& ops, int rank, const Groups& groups) {
    std::vector<T> rows;
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto [m, k, n] = groups[i];
      x.push_back(ops.random<T>({m, k}, salt_of(rank, 10 + i)));
      weight.push_back(ops.random<T>({k, n}, salt_of(rank, 20 + i), 0.3F));
      bias.push_back(ops.random<float>({n}, 30 + i));  // one that all pass
      const auto own = values<T>(x.back());
      rows.insert(rows.end(), own.begin(), own.end());
    }
    one_x.push_back(ops.tensor(rows, {static_cast<int64_t>(rows.size()) / groups[0].k, groups[0].k}));
  }
  static std::vector<TensorView> views(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

  std::vector<Tensor> x, weight, bias, one_x;
};

// y of all groups, one after the other.
template <class T>
Array sum_of_products(int ranks, const Groups& groups) {
  Ops ops;
  Array all;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto [m, k, n] = groups[i];
    Array y(static_cast<size_t>(m * n));
    for (int rank = 0; rank < ranks; ++rank) {
      const Lists<T> lists(ops, rank, groups);
      const Array own = reference::matmul(array(lists.x[i]), false, array(lists.weight[i]), false, m, n, k).value;
      for (size_t j = 0; j < y.size(); ++j) y[j] += own[j];
    }
    const Array bias = array(Lists<T>(ops, 0, groups).bias[i]);
    for (size_t j = 0; j < y.size(); ++j) y[j] += bias[j % static_cast<size_t>(n)];
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

template <class T>
class GroupedMatMulAllReduce : public ::testing::Test {};
using SummedTypes = ::testing::Types<float, kernels::bf16>;
TYPED_TEST_SUITE(GroupedMatMulAllReduce, SummedTypes);

TYPED_TEST(GroupedMatMulAllReduce, AddsUpTheRanksInEverySplit) {
  const double near = std::is_same_v<TypeParam, float> ? 1e-6 : 2e-2;
  for (const int split_item : {0, 1, 2, 3}) {
    const Groups& groups = groups_of(split_item);
    for (const int ranks : {1, 2, 4}) {
      const Array want = sum_of_products<TypeParam>(ranks, groups);
      on_ranks(ranks, [&](Ops& ops, Communicator& world) {
        const Lists<TypeParam> lists(ops, world.rank(), groups);
        const bool one_x = (split_item & 1) != 0, one_y = (split_item & 2) != 0;
        const auto x = lists.views(one_x ? lists.one_x : lists.x), weight = lists.views(lists.weight),
                   bias = lists.views(lists.bias);
        for (const int64_t parts : {0, 3}) {
          GroupedMatMulAllReduceOptions options{.bias = bias, .split_item = split_item, .comm_turn = parts};
          if (one_x) options.group_list = kEnds;
          const auto y = npu_grouped_mat_mul_all_reduce(ops.context, x, weight, world, options);
          ASSERT_EQ(y.size(), one_y ? 1 : groups.size());
          Array seen;
          for (size_t i = 0; i < y.size(); ++i) {
            EXPECT_EQ(y[i].shape(), (core::Dims{one_y ? 60 : groups[i].m, groups[i].n}));
            const Array own = array(y[i]);
            seen.insert(seen.end(), own.begin(), own.end());
          }
          ASSERT_EQ(seen.size(), want.size());
          const double scale = reference::max_abs(want);
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_NEAR(seen[i], want[i], near * (scale + std::abs(want[i])))
                << "split_item " << split_item << " " << i;
          }
        }
      });
    }
  }
}

TYPED_TEST(GroupedMatMulAllReduce, HasTheBitsOfTheOperatorsApart) {
  on_ranks(2, [](Ops& ops, Communicator& world) {
    const Lists<TypeParam> lists(ops, world.rank(), kOneKAndN);
    const auto x = lists.views(lists.x), one_x = lists.views(lists.one_x), weight = lists.views(lists.weight);
    const auto apart = npu_grouped_mat_mul_all_reduce(ops.context, x, weight, world);
    const auto together = npu_grouped_mat_mul_all_reduce(ops.context, one_x, weight, world,
                                                         {.group_list = kEnds, .split_item = 3, .comm_turn = 2});
    int64_t begin = 0;
    for (size_t i = 0; i < apart.size(); ++i) {
      const Tensor want(ops.arena, x[i].dtype(), {x[i].dim(0), 40}, core::MemoryTag::kTmp);
      matmul_into(ops.context, x[i], weight[i], want);
      world.allreduce(want);
      EXPECT_TRUE(same_bytes(apart[i], want));
      EXPECT_TRUE(same_bytes(together[0].view().rows(begin, kEnds[i]), want));
      begin = kEnds[i];
    }
  });
}

TEST(GroupedMatMulAllReduceMessages, AreOneForEachPartOfAGroupAndBesideTheNextProduct) {
  const auto run = [](Ops& ops, Communicator& world) {
    const Lists<float> lists(ops, world.rank(), kUneven);
    npu_grouped_mat_mul_all_reduce(ops.context, lists.views(lists.x), lists.views(lists.weight), world);
  };
  on_ranks(2, [&](Ops& ops, Communicator& world) {
    run(ops, world);
    EXPECT_EQ(world.counter(core::CommOp::kAllreduce).calls, 3);  // none of the empty group
    EXPECT_EQ(world.counter(core::CommOp::kAllreduce).payload_bytes, 4 * (20 * 16 + 33 * 40 + 7 * 16));
  });
  EXPECT_GE(messages_beside(2, "allreduce", "matmul", run), 1);  // of the two that another group follows
}

TEST(GroupedMatMulAllReduceContract, RefusesWhatDoesNotFitInOneLine) {
  on_ranks(1, [](Ops& ops, Communicator& world) {
    const Lists<float> lists(ops, 0, kOneK);
    const auto x = lists.views(lists.x), one_x = lists.views(lists.one_x), weight = lists.views(lists.weight);
    const auto text_of = [&](std::span<const TensorView> of_x, std::span<const TensorView> of_weight,
                             const GroupedMatMulAllReduceOptions& options) {
      const test::Thrown thrown =
          test::thrown_by([&] { npu_grouped_mat_mul_all_reduce(ops.context, of_x, of_weight, world, options); });
      EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
      return thrown.text;
    };
    const std::string prefix = "npu_grouped_mat_mul_all_reduce: ";
    const std::vector<int64_t> short_list = {20, 53, 53, 59};
    EXPECT_EQ(text_of(x, weight, {.split_item = 4}), prefix + "split_item 4; it may be 0 to 3");
    EXPECT_EQ(text_of(x, weight, {.reduce_op = "max"}), prefix + "reduce_op max; it may be sum");
    EXPECT_EQ(text_of(x, {}, {}), prefix + "0 weights; there may be 1 to 64");
    EXPECT_EQ(text_of(one_x, weight, {}), prefix + "1 tensors x for 4 weights and split_item 0");
    EXPECT_EQ(text_of(x, weight, {.group_list = kEnds}),
              prefix + "group_list [20, 53, 53, 60] for 4 weights and split_item 0");
    EXPECT_EQ(text_of(one_x, weight, {.group_list = short_list, .split_item = 1}),
              prefix + "group_list [20, 53, 53, 59] for 60 rows; it has the groups' ends");
    EXPECT_EQ(text_of(x, weight, {.split_item = 2}),
              prefix + "group 1: weight is [24, 40], but y, one tensor, has 16 columns");
    EXPECT_EQ(text_of(x, weight, {.bias = one_x}), prefix + "1 biases for 4 weights");
    EXPECT_EQ(text_of(x, weight, {.bias = x}),
              prefix + "group 0: bias is fp32 [20, 24], expected [16] in x's dtype or fp32");
    EXPECT_EQ(text_of(weight, weight, {}), prefix + "group 0: x is [24, 16], weight [24, 16]");
    EXPECT_EQ(world.counter(core::CommOp::kAllreduce).calls, 0);
  });
}

}  // namespace
}  // namespace ms::ops
