// Fewer query groups than tensor-parallel ranks: what the ranks of a group gather and scatter, and whole runs against
// one rank.
#include "train/parallel/query_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

using test::TinyLayout;

constexpr int64_t kSeq = 3, kBatch = 2, kHeads = 8, kHeadDim = 8;

struct Case {
  int tp, groups;
};
const Case kCases[] = {{2, 1}, {4, 1}, {4, 2}, {8, 2}, {8, 4}};

void for_each_rank(const std::function<void(Rank&, const Case&)>& body) {
  const test::TemporaryFolder folder;
  for (const Case& of : kCases) {
    TrainerConfig config = test::tiny_config(folder.path(), {of.tp});
    config.model.num_query_groups = of.groups;
    SCOPED_TRACE(core::cat("tp ", of.tp, ", groups ", of.groups));
    test::run_thread_ranks(of.tp, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      body(rank, of);
    });
  }
}

core::Tensor tensor(Rank& rank, const core::Dims& shape) {
  return {rank.arena, core::DType::kFp32, shape, core::MemoryTag::kAct};
}

// A value for each element of a token's queries, keys and values, exact in fp32. kind: 0, 1, 2.
float value(int64_t token, int kind, int64_t head, int64_t at) {
  return static_cast<float>(((token * 3 + kind) * kHeads + head) * kHeadDim + at);
}

// Megatron's row of linear_qkv: of each group its queries, then its key, then its value.
std::vector<float> whole_row(int64_t groups, const std::function<float(int, int64_t, int64_t)>& of) {
  std::vector<float> row;
  const auto add = [&](int kind, int64_t head) {
    for (int64_t at = 0; at < kHeadDim; ++at) row.push_back(of(kind, head, at));
  };
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t head = 0; head < kHeads / groups; ++head) add(0, group * kHeads / groups + head);
    add(1, group), add(2, group);
  }
  return row;
}

TEST(SharedQueryGroup, GathersTheHeadsOfEachRank) {
  for_each_rank([](Rank& rank, const Case& of) {
    const int64_t width = (kHeads + 2 * of.groups) * kHeadDim / of.tp, heads = kHeads / of.tp;
    const int64_t tp_rank = rank.state->tp_rank(), group = tp_rank * of.groups / of.tp;
    core::Tensor packed = tensor(rank, {kSeq, kBatch, width});
    for (int64_t token = 0; token < kSeq * kBatch; ++token) {
      const auto row =
          whole_row(of.groups, [&](int kind, int64_t head, int64_t at) { return value(token, kind, head, at); });
      ASSERT_EQ(static_cast<int64_t>(row.size()), width * of.tp);
      std::copy_n(row.begin() + tp_rank * width, width, packed.data<float>() + token * width);
    }
    auto shared = shared_query_group(*rank.state);
    ASSERT_TRUE(shared);
    const ops::QkvTensors qkv = shared->gather(std::move(packed));
    const auto expect = [&](const core::Tensor& seen, int kind, int64_t first, int64_t count) {
      ASSERT_EQ(seen.shape(), (core::Dims{kSeq, kBatch, count, kHeadDim}));
      for (int64_t i = 0; i < seen.size(); ++i) {
        const int64_t token = i / (count * kHeadDim), head = first + i / kHeadDim % count;
        ASSERT_EQ(seen.data<float>()[i], value(token, kind, head, i % kHeadDim)) << "kind " << kind << ", " << i;
      }
    };
    expect(qkv.q, 0, tp_rank * heads, heads);
    expect(qkv.k, 1, group, 1);
    expect(qkv.v, 2, group, 1);
  });
}

// Each rank has gradients of the shared key and value, with a factor of its own.
TEST(SharedQueryGroup, ScattersTheSumOfTheRanksGradients) {
  for_each_rank([](Rank& rank, const Case& of) {
    const int64_t width = (kHeads + 2 * of.groups) * kHeadDim / of.tp, heads = kHeads / of.tp;
    const int64_t tp_rank = rank.state->tp_rank(), sharing = of.tp / of.groups;
    const auto of_rank = [](int64_t number, int64_t token, int kind, int64_t head, int64_t at) {
      return value(token, kind, head, at) * static_cast<float>(1 + number * number);
    };
    const auto fill = [&](const core::Tensor& x, int kind, int64_t first) {
      const int64_t count = x.dim(2);
      for (int64_t i = 0; i < x.size(); ++i)
        x.data<float>()[i] = of_rank(tp_rank, i / (count * kHeadDim), kind, first + i / kHeadDim % count, i % kHeadDim);
    };
    ops::QkvGradients grads{tensor(rank, {kSeq, kBatch, heads, kHeadDim}), tensor(rank, {kSeq, kBatch, 1, kHeadDim}),
                            tensor(rank, {kSeq, kBatch, 1, kHeadDim})};
    fill(grads.dq, 0, tp_rank * heads);
    fill(grads.dk, 1, tp_rank / sharing);
    fill(grads.dv, 2, tp_rank / sharing);
    const core::Tensor packed = shared_query_group(*rank.state)->scatter(std::move(grads));
    ASSERT_EQ(packed.shape(), (core::Dims{kSeq, kBatch, width}));
    for (int64_t token = 0; token < kSeq * kBatch; ++token) {
      const auto row = whole_row(of.groups, [&](int kind, int64_t head, int64_t at) {
        if (kind == 0) return of_rank(head / heads, token, kind, head, at);
        float sum = 0;
        for (int64_t other = head * sharing; other < (head + 1) * sharing; ++other)
          sum += of_rank(other, token, kind, head, at);
        return sum;
      });
      for (int64_t at = 0; at < width; ++at)
        ASSERT_EQ(packed.data<float>()[token * width + at], row[static_cast<size_t>(tp_rank * width + at)]) << at;
    }
  });
}

TEST(SharedQueryGroup, IsNotThereWhereRanksHaveWholeGroups) {
  const test::TemporaryFolder folder;
  const TrainerConfig config = test::tiny_config(folder.path(), {2});
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    EXPECT_FALSE(shared_query_group(*rank.state));
  });
}

struct RunRow {
  int64_t groups;
  TinyLayout layout;
  const char* change = "";
};

TrainerConfig configured(const test::TemporaryFolder& folder, const RunRow& run, const TinyLayout& layout) {
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  const std::string change = run.change;
  config.model.num_query_groups = run.groups;
  config.training.global_batch_size = 8;
  config.model.qk_layernorm = change == "norms of heads";
  config.model.add_qkv_bias = change == "biases";
  config.model.attention_dropout = change == "dropout" ? 0.2 : 0;
  if (change == "recomputed") {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 2;
  }
  return config;
}

RunSummary run(TrainerConfig config, int ranks, int64_t until, const std::string& load, const std::string& save) {
  config.training.train_iters = until;
  config.checkpoint.load = load;
  config.checkpoint.save = save;
  return test::run_on_threads(config, ranks);
}

class SharedQueryGroups : public testing::TestWithParam<RunRow> {};

TEST_P(SharedQueryGroups, AgreeWithOneRankThatContinuesThem) {
  const RunRow& row = GetParam();
  const test::TemporaryFolder folder;
  const TrainerConfig cut = configured(folder, row, row.layout), whole = configured(folder, row, {});
  const RunSummary one = run(whole, 1, 10, "", folder / "one");
  const RunSummary first = run(cut, row.layout.ranks(), 10, "", folder / "first");
  ASSERT_EQ(first.steps.size(), 10U);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(first.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
    EXPECT_NEAR(first.steps[i].grad_norm, one.steps[i].grad_norm, 1e-3 * one.steps[i].grad_norm) << "step " << i + 1;
  }
  const auto weights = [](const RunSummary& of) { return test::read_tensors(of.checkpoint, core::TensorRole::kParam); };
  EXPECT_LT(test::largest_distance(weights(first), weights(one)), 1e-4);
  if (testing::Test::HasFailure()) ADD_FAILURE() << test::first_apart(whole, 1, cut, row.layout.ranks(), 2e-5);
  // Each continues the other's checkpoint.
  const RunSummary reference = run(whole, 1, 14, folder / "one", folder / "reference");
  const RunSummary gathered = run(whole, 1, 14, folder / "first", folder / "gathered");
  const RunSummary scattered = run(cut, row.layout.ranks(), 14, folder / "one", folder / "scattered");
  for (const RunSummary* other : {&gathered, &scattered}) {
    ASSERT_EQ(other->steps.size(), 4U);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(other->steps[i].loss, reference.steps[i].loss, 1e-5 * reference.steps[i].loss) << "step " << i + 11;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, SharedQueryGroups,
    testing::Values(RunRow{1, {2, 1, 1}}, RunRow{1, {2, 1, 1, 0, true}}, RunRow{1, {4, 1, 1, 0, true}},
                    RunRow{2, {4, 1, 1}}, RunRow{2, {4, 1, 2, 1, true}}, RunRow{1, {2, 2, 1, 0, true}},
                    RunRow{2, {4, 1, 2, 3}}, RunRow{1, {2, 2, 1, 0, false, 1, "dualpipev"}},
                    RunRow{1, {2, 2, 1, 0, true, 1, "zb-h1"}}, RunRow{2, {4, 1, 1, 0, true, 1, "", "coc2"}},
                    RunRow{1, {2, 1, 1, 0, false, 1, "", "tp"}}, RunRow{2, {4, 1, 1}, "norms of heads"},
                    RunRow{1, {2, 1, 1, 0, true}, "norms of heads"}, RunRow{1, {4, 1, 1}, "biases"},
                    RunRow{1, {4, 1, 1}, "dropout"}, RunRow{2, {4, 1, 1, 0, true}, "recomputed"}),
    [](const auto& test) {
      std::string name = core::cat("groups", test.param.groups, "_", test.param.layout.name(), "_", test.param.change);
      std::ranges::replace(name, ' ', '_');
      return name;
    });

}  // namespace
}  // namespace ms::train
