// Ranks that share sequences against one rank: every algorithm with every mask, kind of attention, number type and
// layout of the other ranks. By default a covering array, in which each pair of them occurs; MS_NIGHTLY=1 (ctest -L
// nightly) runs the product of all. Compared are the losses of two steps and each parameter's gradient, which SGD's
// momentum keeps: 0.9 times that of the first step and that of the second, behind an update.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/covering_array.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::Combination;
using test::TinyLayout;
using train::TrainerConfig;

enum Axis : size_t { kAlgorithm, kMask, kAttention, kType, kOthers };

struct Algorithm {
  const char* context;  // TinyLayout
  int ranks;
  bool is_adaptive() const { return std::string(context).ends_with("adaptive"); }
};
constexpr Algorithm kAlgorithms[] = {
    {"a2a", 2},      {"all_gather", 2},      {"p2p", 4},     {"p2p w2", 4},         {"a2a+p2p", 4},
    {"adaptive", 4}, {"hybrid_adaptive", 4}, {"a2a,p2p", 2}, {"all_gather,a2a", 4}, {"p2p,a2a+p2p", 4}};

struct Value {
  const char* name;
  void (*set)(TrainerConfig&);
};
constexpr Value kMasks[] = {
    {"causal", [](TrainerConfig&) {}},
    {"packed",
     [](TrainerConfig& config) { config.training.reset_attention_mask = config.training.reset_position_ids = true; }},
    {"band", [](TrainerConfig& config) { config.model.sliding_window = 11; }},
    {"prefix",
     [](TrainerConfig& config) {
       config.training.sparse_mode = 5;
       config.training.prefix_length = 23;  // on two of four ranks
     }},
    {"grid",
     [](TrainerConfig& config) {
       config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
     }},
    {"general_grid",
     [](TrainerConfig& config) {
       config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/general_16.txt";
       config.training.attention_mask_type = "general";
     }},
};
constexpr size_t kBandMask = 2;
constexpr Value kAttentions[] = {
    {"mha",
     [](TrainerConfig& config) {
       config.model.group_query_attention = false;
       config.model.num_query_groups = core::TransformerConfig().num_query_groups;
     }},
    {"gqa", [](TrainerConfig& config) { config.model.num_query_groups = 2; }},
    {"mla", test::use_latent_attention},
};
constexpr Value kTypes[] = {
    {"fp32", [](TrainerConfig&) {}},
    {"bf16", [](TrainerConfig& config) { config.training.bf16 = true; }},
};

struct Others {
  const char* name;
  int tp = 1, pp = 1, dp = 1, zero = 0, ep = 1;
};
constexpr Others kOtherRanks[] = {
    {"alone"}, {"tp2", 2}, {"pp2", 1, 2}, {"zero1", 1, 1, 2, 1}, {"zero3", 1, 1, 2, 3}, {"ep2", 1, 1, 1, 0, 2}};

// A window depends on how far apart positions are, which adaptive algorithms do not know.
std::vector<Combination> every_combination() {
  return test::all_combinations(
      {std::size(kAlgorithms), std::size(kMasks), std::size(kAttentions), std::size(kTypes), std::size(kOtherRanks)},
      [](const Combination& of) { return of[kMask] != kBandMask || !kAlgorithms[of[kAlgorithm]].is_adaptive(); });
}
std::vector<Combination> table() {
  const std::vector<Combination> all = every_combination();
  return std::getenv("MS_NIGHTLY") != nullptr ? all : test::covering_array(all);
}

std::string name_of(const Combination& of) {
  std::string name =
      core::cat(kAlgorithms[of[kAlgorithm]].context, "_", kMasks[of[kMask]].name, "_", kAttentions[of[kAttention]].name,
                "_", kTypes[of[kType]].name, "_", kOtherRanks[of[kOthers]].name);
  std::ranges::replace_if(
      name, [](char c) { return c == '+' || c == ' '; }, '_');
  if (const size_t comma = name.find(','); comma != std::string::npos) name.replace(comma, 1, "_and_");
  return name;
}

struct TwoSteps {
  std::vector<train::StepMetrics> steps;
  std::map<std::string, std::vector<float>> gradients;
};

class ContextTable : public testing::TestWithParam<Combination> {
 protected:
  static void SetUpTestSuite() { folder_ = new test::TemporaryFolder; }
  static void TearDownTestSuite() {
    delete folder_;
    of_one_rank_.clear();
  }

  static TwoSteps run(const Combination& of, const TinyLayout& layout, int ep) {
    TrainerConfig config = test::tiny_config(folder_->path(), layout);
    test::set_layers(config, 2);
    config.training.seq_length = 64;  // of documents of 61 tokens
    config.training.micro_batch_size = 2;
    config.training.train_iters = 2;
    config.optimizer.optimizer = "sgd";
    config.optimizer.lr = 0.1;
    config.optimizer.weight_decay = config.optimizer.clip_grad = 0;
    const test::TemporaryFolder save;
    config.checkpoint.save = save.path();
    kMasks[of[kMask]].set(config);
    kAttentions[of[kAttention]].set(config);
    kTypes[of[kType]].set(config);
    if (kOtherRanks[of[kOthers]].ep > 1) {
      config.model.num_experts = config.model.moe_router_topk = 4;  // so that rounding chooses no other experts
      config.model.moe_ffn_hidden_size = 24;
      config.parallel.expert_model_parallel_size = ep;
    }
    const train::RunSummary summary = test::run_on_threads(config, layout.ranks());
    return {summary.steps, test::read_tensors(summary.checkpoint, core::TensorRole::kMomentumBuffer)};
  }

  // Runs a model once.
  static const TwoSteps& of_one_rank(const Combination& of) {
    const auto key = std::tuple(of[kMask], of[kAttention], of[kType], kOtherRanks[of[kOthers]].ep > 1);
    auto found = of_one_rank_.find(key);
    if (found == of_one_rank_.end()) found = of_one_rank_.emplace(key, run(of, {}, 1)).first;
    return found->second;
  }

 private:
  static inline test::TemporaryFolder* folder_ = nullptr;
  static inline std::map<std::tuple<size_t, size_t, size_t, bool>, TwoSteps> of_one_rank_;
};

TEST_P(ContextTable, AgreesWithOneRank) {
  const Combination& of = GetParam();
  const Algorithm& algorithm = kAlgorithms[of[kAlgorithm]];
  const Others& others = kOtherRanks[of[kOthers]];
  const TinyLayout layout{others.tp, others.pp, others.dp, others.zero,     others.tp > 1,
                          1,         "",        "",        algorithm.ranks, algorithm.context};
  const TwoSteps &one = of_one_rank(of), seen = run(of, layout, others.ep);
  const bool is_bf16 = of[kType] == 1;
  ASSERT_EQ(seen.steps.size(), one.steps.size());
  double loss = 0;
  for (size_t i = 0; i < one.steps.size(); ++i) {
    loss = std::max(loss, std::abs(seen.steps[i].loss / one.steps[i].loss - 1));
    EXPECT_EQ(seen.steps[i].tokens, one.steps[i].tokens);
  }
  const double gradients = test::largest_distance(seen.gradients, one.gradients);
  std::printf("relative distances: loss %.1e, gradients %.1e\n", loss, gradients);
  EXPECT_LT(loss, is_bf16 ? 1e-4 : 1e-6);
  EXPECT_LT(gradients, is_bf16 ? 0x1p-5 : 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Table, ContextTable, testing::ValuesIn(table()),
                         [](const auto& test) { return name_of(test.param); });

TEST(CoveringArray, HasEveryPairOfValues) {
  std::set<test::ValuePair> wanted, seen;
  for (const Combination& of : every_combination()) wanted.merge(test::value_pairs(of));
  const std::vector<Combination> array = test::covering_array(every_combination());
  for (const Combination& of : array) seen.merge(test::value_pairs(of));
  EXPECT_EQ(seen, wanted);
  EXPECT_LE(array.size(), 2 * std::size(kAlgorithms) * std::size(kOtherRanks)) << "the two longest axes";
}

}  // namespace
}  // namespace ms
