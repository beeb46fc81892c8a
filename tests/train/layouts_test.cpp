// Every layout against one rank, on the numerics ladder of features.md (G4): pipeline cuts bitwise, what re-associates
// sums to 1e-5 relative in the loss of each of 50 steps. The table is data: a new layout is a new line.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

constexpr int kSteps = 50;

const std::vector<TinyLayout> kLayouts = {
    // tp, pp, dp, zero, sp
    {1, 1, 1, true, false}, {1, 1, 2, false, false}, {1, 1, 2, true, false}, {1, 2, 1, false, false},
    {1, 2, 1, true, false}, {1, 2, 2, false, false}, {1, 2, 2, true, false}, {2, 1, 1, false, false},
    {2, 1, 1, false, true}, {2, 1, 1, true, false},  {2, 1, 1, true, true},  {2, 1, 2, false, false},
    {2, 1, 2, false, true}, {2, 1, 2, true, false},  {2, 1, 2, true, true},  {2, 2, 1, false, false},
    {2, 2, 1, false, true}, {2, 2, 1, true, false},  {2, 2, 1, true, true},  {2, 2, 2, false, false},
    {2, 2, 2, false, true}, {2, 2, 2, true, false},  {2, 2, 2, true, true},  {4, 1, 1, false, false},
    {4, 1, 1, false, true}, {4, 1, 1, true, false},  {4, 1, 1, true, true},  {4, 1, 2, false, false},
    {4, 1, 2, false, true}, {4, 1, 2, true, false},  {4, 1, 2, true, true},  {4, 2, 1, false, false},
    {4, 2, 1, false, true}, {4, 2, 1, true, false},  {4, 2, 1, true, true},
};

struct Outcome {
  train::RunSummary summary;
  std::map<std::string, std::vector<float>> weights;
};

class Layouts : public testing::TestWithParam<TinyLayout> {
 protected:
  static void SetUpTestSuite() { folder_ = new test::TemporaryFolder; }
  static void TearDownTestSuite() {
    delete folder_;
    outcomes_.clear();
  }

  // Runs a layout once; the result is kept for comparison with others.
  static const Outcome& outcome(const TinyLayout& layout, bool tied = false) {
    const std::string name = layout.name() + (tied ? "_tied" : "");
    if (outcomes_.count(name) == 0) {
      train::TrainerConfig config = test::tiny_config(folder_->path(), layout);
      config.model.untie_embeddings_and_output_weights = !tied;
      config.training.train_iters = kSteps;
      config.checkpoint.save = folder_->file(name);
      Outcome& made = outcomes_[name];
      made.summary = test::run_on_threads(config, layout.ranks());
      made.weights = test::read_tensors(made.summary.checkpoint, core::TensorRole::kParam);
    }
    return outcomes_[name];
  }

  static void expect_near(const Outcome& seen, const Outcome& expected) {
    ASSERT_EQ(seen.summary.steps.size(), expected.summary.steps.size());
    for (size_t i = 0; i < seen.summary.steps.size(); ++i) {
      const auto& a = seen.summary.steps[i];
      const auto& b = expected.summary.steps[i];
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
    }
    EXPECT_LT(test::largest_distance(seen.weights, expected.weights), 1e-4);
  }

  static void expect_equal(const Outcome& seen, const Outcome& expected) {
    ASSERT_EQ(seen.summary.steps.size(), expected.summary.steps.size());
    for (size_t i = 0; i < seen.summary.steps.size(); ++i) {
      EXPECT_EQ(seen.summary.steps[i].loss, expected.summary.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(seen.summary.steps[i].grad_norm, expected.summary.steps[i].grad_norm) << "step " << i + 1;
    }
    EXPECT_EQ(test::largest_distance(seen.weights, expected.weights), 0);
  }

 private:
  static inline test::TemporaryFolder* folder_ = nullptr;
  static inline std::map<std::string, Outcome> outcomes_;
};

TEST_P(Layouts, AgreesWithOneRank) {
  const TinyLayout layout = GetParam();
  const Outcome& one = outcome({});
  EXPECT_LT(one.summary.steps.back().loss, 0.8 * one.summary.steps.front().loss)
      << "it must learn, or equal losses say little";
  if (layout.tp == 1 && layout.dp == 1) {
    expect_equal(outcome(layout), one);
  } else {
    expect_near(outcome(layout), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Layouts, testing::ValuesIn(kLayouts),
                         [](const auto& test) { return test.param.name(); });

// With ZeRO a tensor's norm is summed in the parts that its owners hold, so the cut may change the last bit of it.
std::vector<TinyLayout> cut_layouts() {
  std::vector<TinyLayout> layouts;
  std::copy_if(kLayouts.begin(), kLayouts.end(), std::back_inserter(layouts),
               [](const TinyLayout& layout) { return layout.pp > 1 && !layout.zero; });
  return layouts;
}

class CutLayouts : public Layouts {};

TEST_P(CutLayouts, ThePipelineCutChangesNoBit) {
  TinyLayout layout = GetParam();
  const Outcome& cut = outcome(layout);
  layout.pp = 1;
  expect_equal(cut, outcome(layout));
}

INSTANTIATE_TEST_SUITE_P(Table, CutLayouts, testing::ValuesIn(cut_layouts()),
                         [](const auto& test) { return test.param.name(); });

class TiedLayouts : public Layouts {};

TEST_P(TiedLayouts, AgreesWithOneRank) {
  const TinyLayout layout = GetParam();
  if (layout.tp == 1 && layout.dp == 1) {
    expect_equal(outcome(layout, true), outcome({}, true));
  } else {
    expect_near(outcome(layout, true), outcome({}, true));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, TiedLayouts,
                         testing::Values(TinyLayout{1, 2, 1, false, false}, TinyLayout{1, 4, 1, false, false},
                                         TinyLayout{2, 2, 1, true, true}, TinyLayout{2, 1, 2, true, false},
                                         TinyLayout{1, 2, 2, true, false}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace ms
