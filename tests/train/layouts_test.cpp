// Every layout against one rank. Pipeline cuts and virtual stages must be bitwise equal; layouts that re-associate sums
// agree to 1e-5 relative in the loss of each of 50 steps. A new layout is a new line of the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <tuple>

#include "core/error.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::Outcome;
using test::TinyLayout;

constexpr int kSteps = 50;

// {TP 1, 2, 4} x {PP 1, 2, 4} x {VPP 1, 2, or a schedule} x {DP 1, 2, 4} x {ZeRO 0 to 3} x SP, up to 8 ranks.
std::vector<TinyLayout> every_layout() {
  std::vector<TinyLayout> layouts;
  for (int tp : {1, 2, 4}) {
    for (int pp : {1, 2, 4}) {
      for (int vpp : {1, 2}) {
        for (int dp : {1, 2, 4}) {
          for (int zero : {0, 1, 2, 3}) {
            for (bool sp : {false, true}) {
              const TinyLayout layout{tp, pp, dp, zero, sp, vpp};
              if (layout.ranks() > 8 || (pp == 1 && vpp > 1) || (tp == 1 && sp) || (dp == 1 && zero > 1)) continue;
              layouts.push_back(layout);
              if (vpp > 1) {
                layouts.push_back(layout);
                layouts.back().schedule = "nanopipe";
              }
              if (pp == 1 || vpp > 1) continue;
              for (const std::string schedule : {"zb-h1", "zb-v", "dualpipev", "dualpipev detached"}) {
                if (zero > 1 && schedule.starts_with("dualpipev")) continue;
                layouts.push_back(layout);
                layouts.back().schedule = schedule;
              }
              if (tp > 1 && zero < 2) {
                layouts.push_back(layout);
                layouts.back().schedule = "dualpipev delayed";
              }
            }
          }
        }
      }
    }
  }
  // With ranks that share sequences: {TP 1, 2} x {PP 1, 2} x {DP 1, 2} x {CP 2, 4, 8} x {ZeRO 0 to 3} x SP.
  const std::vector<TinyLayout> one_sequence = layouts;
  for (const std::string context :
       {"a2a", "all_gather", "p2p", "p2p w2", "a2a+p2p", "a2a+p2p w2", "adaptive", "a2a,p2p,a2a+p2p,all_gather"}) {
    const int least = context == "a2a+p2p w2" ? 8 : context.find('2', 3) != std::string::npos ? 4 : 2;
    for (const TinyLayout& layout : one_sequence) {
      for (int cp = least; cp <= 8; cp *= 2) {
        if (layout.ranks() * cp > 8 || layout.tp * cp > 8) continue;
        layouts.push_back(layout);
        layouts.back().cp = cp;
        layouts.back().context = context;
      }
    }
  }
  return layouts;
}

// Covers every value of every axis, and every pair of axes together.
const std::vector<TinyLayout> kCovering = {
    // tp, pp, dp, zero, sp, vpp
    {1, 1, 1, false, false, 1},
    {1, 1, 2, false, false, 1},
    {1, 1, 2, true, false, 1},
    {1, 1, 4, true, false, 1},
    {1, 2, 1, false, false, 1},
    {1, 2, 1, false, false, 2},
    {1, 2, 1, true, false, 2},
    {1, 2, 2, true, false, 1},
    {1, 2, 2, false, false, 2},
    {1, 4, 1, false, false, 1},
    {1, 4, 1, false, false, 2},
    {2, 1, 1, false, false, 1},
    {2, 1, 1, false, true, 1},
    {2, 1, 2, false, false, 1},
    {2, 1, 2, true, true, 1},
    {2, 2, 1, false, true, 1},
    {2, 2, 1, false, true, 2},
    {2, 2, 1, true, false, 2},
    {2, 2, 2, true, true, 1},
    {2, 2, 2, false, true, 2},
    {4, 1, 1, false, false, 1},
    {4, 1, 1, true, true, 1},
    {4, 1, 2, false, true, 1},
    {4, 2, 1, false, true, 1},
    {4, 2, 1, true, false, 2},
    // ZeRO-2
    {1, 1, 2, 2, false, 1},
    {1, 1, 4, 2, false, 1},
    {1, 2, 2, 2, false, 1},
    {1, 2, 2, 2, false, 2},
    {1, 2, 4, 2, false, 1},
    {1, 4, 2, 2, false, 1},
    {2, 1, 2, 2, false, 1},
    {2, 2, 2, 2, true, 1},
    {2, 2, 2, 2, true, 2},
    {1, 2, 2, 2, false, 1, "zb-h1"},
    {2, 2, 2, 2, true, 1, "zb-v"},
    {1, 2, 2, 2, false, 2, "nanopipe"},
    // ZeRO-3
    {1, 1, 2, 3, false, 1},
    {1, 1, 4, 3, false, 1},
    {1, 2, 2, 3, false, 2},
    {1, 4, 2, 3, false, 1},
    {2, 1, 2, 3, false, 1},
    {2, 2, 2, 3, true, 1},
    {1, 2, 2, 3, false, 1, "zb-h1"},
    {2, 2, 2, 3, true, 1, "zb-v"},
    // and a schedule
    {1, 2, 1, false, false, 1, "zb-h1"},
    {1, 4, 1, false, false, 1, "zb-h1"},
    {2, 2, 1, false, true, 1, "zb-h1"},
    {1, 2, 2, true, false, 1, "zb-h1"},
    {1, 2, 1, false, false, 1, "zb-v"},
    {1, 4, 1, false, false, 1, "zb-v"},
    {2, 2, 2, true, true, 1, "zb-v"},
    {1, 2, 1, false, false, 1, "dualpipev"},
    {1, 4, 1, false, false, 1, "dualpipev"},
    {2, 2, 1, false, false, 1, "dualpipev"},
    {2, 2, 1, false, true, 1, "dualpipev detached"},
    {2, 2, 1, false, true, 1, "dualpipev delayed"},
    {1, 4, 1, false, false, 1, "dualpipev detached"},
    {1, 2, 2, true, false, 1, "dualpipev detached"},
    {1, 4, 1, false, false, 2, "nanopipe"},
    {2, 2, 1, false, true, 2, "nanopipe"},
    // and an overlap
    {2, 1, 1, false, false, 1, "", "tp"},
    {2, 1, 2, true, true, 1, "", "tp"},
    {4, 1, 1, false, false, 1, "", "coc2"},
    {2, 1, 2, true, true, 1, "", "coc4"},
    {2, 2, 1, false, true, 1, "zb-h1", "coc2"},
    {2, 2, 1, false, true, 1, "dualpipev", "coc2"},
    // and ranks that share sequences
    {1, 1, 1, false, false, 1, "", "", 2, "a2a"},
    {1, 1, 1, false, false, 1, "", "", 4, "a2a"},
    {1, 1, 1, false, false, 1, "", "", 8, "a2a"},
    {1, 1, 2, true, false, 1, "", "", 2, "a2a"},
    {2, 1, 1, false, true, 1, "", "", 2, "a2a"},
    {2, 1, 1, true, true, 1, "", "", 4, "a2a"},
    {2, 2, 1, true, true, 1, "", "", 2, "a2a"},
    {1, 2, 1, false, false, 2, "", "", 2, "a2a"},
    {1, 2, 2, 2, false, 1, "", "", 2, "a2a"},
    {1, 1, 1, 3, false, 1, "", "", 2, "a2a"},
    {2, 1, 1, false, true, 1, "", "tp", 2, "a2a"},
    {1, 2, 1, false, false, 1, "zb-v", "", 2, "a2a"},
    {1, 2, 1, false, false, 1, "dualpipev", "", 2, "a2a"},
    {1, 1, 1, false, false, 1, "", "", 2, "all_gather"},
    {1, 1, 1, true, false, 1, "", "", 4, "all_gather"},
    {1, 1, 1, false, false, 1, "", "", 8, "all_gather"},
    {2, 1, 2, false, true, 1, "", "", 2, "all_gather"},
    {2, 2, 1, true, true, 1, "", "", 2, "all_gather"},
    {1, 2, 2, 2, false, 1, "", "", 2, "all_gather"},
    {1, 1, 2, 3, false, 1, "", "", 2, "all_gather"},
    {1, 2, 1, false, false, 1, "zb-h1", "", 2, "all_gather"},
    {1, 1, 1, false, false, 1, "", "", 2, "p2p"},
    {1, 1, 1, true, false, 1, "", "", 4, "p2p"},
    {1, 1, 1, false, false, 1, "", "", 8, "p2p"},
    {2, 1, 2, true, true, 1, "", "", 2, "p2p"},
    {2, 2, 1, false, true, 1, "", "", 2, "p2p"},
    {1, 2, 1, false, false, 2, "", "", 2, "p2p"},
    {1, 2, 2, 2, false, 1, "", "", 2, "p2p"},
    {1, 1, 2, 3, false, 1, "", "", 2, "p2p"},
    {1, 2, 1, false, false, 1, "zb-v", "", 2, "p2p"},
    {1, 2, 1, false, false, 1, "dualpipev", "", 2, "p2p"},
    {1, 1, 1, false, false, 1, "", "", 4, "p2p w2"},
    {1, 1, 1, true, false, 1, "", "", 8, "p2p w2"},
    {1, 1, 1, false, false, 1, "", "", 8, "p2p w4"},
    {1, 1, 1, false, false, 1, "", "", 4, "a2a+p2p"},
    {1, 1, 1, true, false, 1, "", "", 8, "a2a+p2p"},
    {1, 1, 1, false, false, 1, "", "", 8, "a2a+p2p u4"},
    {1, 1, 1, false, false, 1, "", "", 8, "a2a+p2p w2"},
    {2, 1, 1, true, true, 1, "", "", 4, "a2a+p2p"},
    {1, 1, 2, 3, false, 1, "", "", 4, "a2a+p2p"},
    {1, 2, 1, 2, false, 2, "", "", 4, "a2a+p2p"},
    {2, 1, 1, true, true, 1, "", "", 4, "adaptive"},
    {1, 1, 2, 3, false, 1, "", "", 4, "adaptive"},
    {1, 2, 1, 2, false, 2, "", "", 4, "hybrid_adaptive"},
    {1, 2, 1, false, false, 1, "dualpipev", "", 4, "a2a+p2p"},
    {1, 1, 1, false, false, 1, "", "", 2, "a2a,p2p"},
    {1, 1, 1, true, false, 1, "", "", 8, "a2a,p2p,a2a+p2p,all_gather"},
    {2, 1, 1, true, true, 1, "", "", 4, "a2a+p2p,a2a"},
    {2, 2, 1, false, true, 1, "", "", 2, "all_gather,a2a"},
    {1, 1, 2, 3, false, 1, "", "", 4, "p2p,a2a w2"},
    {1, 2, 1, 2, false, 2, "", "", 4, "p2p,a2a+p2p,a2a"},
    {1, 2, 1, false, false, 1, "zb-v", "", 2, "a2a,p2p,all_gather"},
    {1, 2, 1, false, false, 1, "dualpipev", "", 2, "p2p,a2a"},
};

// MS_NIGHTLY=1 (ctest -L nightly) runs every layout.
std::vector<TinyLayout> table() { return std::getenv("MS_NIGHTLY") != nullptr ? every_layout() : kCovering; }

class Layouts : public testing::TestWithParam<TinyLayout> {
 protected:
  static void SetUpTestSuite() { folder_ = new test::TemporaryFolder; }
  static void TearDownTestSuite() {
    delete folder_;
    outcomes_.clear();
  }

  // The reference run of a layout: as many layers and micro-batches as the layout needs.
  struct Shape {
    int64_t layers = 4, batch = 4;
  };
  static Shape shape_for(const TinyLayout& layout) {
    Shape shape;
    if (layout.pp * layout.chunks() > 4) shape.layers = 8;             // a layer for every chunk
    if (layout.vpp > 1 && layout.pp * layout.dp > 4) shape.batch = 8;  // micro-batches in groups of pp
    if (layout.schedule.starts_with("dualpipev")) shape.batch = std::max(4, 2 * layout.pp * layout.dp);
    return shape;
  }

  static train::TrainerConfig configured(const TinyLayout& layout, const Shape& shape, bool tied = false) {
    train::TrainerConfig config = test::tiny_config(folder_->path(), layout);
    test::set_layers(config, shape.layers);
    config.training.global_batch_size = shape.batch;
    config.model.untie_embeddings_and_output_weights = !tied;
    return config;
  }

  // Runs a layout once and keeps the result for comparison with others.
  static const Outcome& outcome(const TinyLayout& layout, const Shape& shape, bool tied = false) {
    const std::string name = core::cat(layout.name(), "_", shape.layers, "_", shape.batch, tied ? "_tied" : "");
    if (outcomes_.count(name) == 0) {
      train::TrainerConfig config = configured(layout, shape, tied);
      config.training.train_iters = kSteps;
      outcomes_[name] = test::outcome_of(config, layout.ranks(), *folder_ / name);
    }
    return outcomes_[name];
  }

  // AdamW's steps have the size of the learning rate even for a tiny gradient, so elements with a gradient near zero
  // carry roundoff into the weights, more of it the more layers it passes.
  static void expect_near(const Outcome& seen, const Outcome& expected, const Shape& shape) {
    ASSERT_EQ(seen.summary.steps.size(), expected.summary.steps.size());
    for (size_t i = 0; i < seen.summary.steps.size(); ++i) {
      const auto& a = seen.summary.steps[i];
      const auto& b = expected.summary.steps[i];
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
    }
    EXPECT_LT(test::largest_distance(seen.weights, expected.weights), 2.5e-5 * static_cast<double>(shape.layers));
  }

  // In a test that has failed: the module in which the layout parts from one rank.
  static void name_the_module(const TinyLayout& layout, bool tied = false) {
    if (!HasFailure() || layout.cp > 1) return;  // which records no tensors
    const Shape shape = shape_for(layout);
    ADD_FAILURE() << test::first_apart(configured({}, shape, tied), 1, configured(layout, shape, tied), layout.ranks(),
                                       layout.tp == 1 && layout.dp == 1 ? 1e-30 : 2e-5);
  }

  static void expect_equal(const Outcome& seen, const Outcome& expected) { test::expect_same_bits(seen, expected); }

 private:
  static inline test::TemporaryFolder* folder_ = nullptr;
  static inline std::map<std::string, Outcome> outcomes_;
};

TEST_P(Layouts, AgreesWithOneRank) {
  const TinyLayout layout = GetParam();
  const Outcome& one = outcome({}, shape_for(layout));
  EXPECT_LT(one.summary.steps.back().loss, 0.85 * one.summary.steps.front().loss)
      << "it must learn, or equal losses say little";
  if (layout.tp == 1 && layout.dp == 1 && layout.cp == 1) {
    expect_equal(outcome(layout, shape_for(layout)), one);
  } else {
    expect_near(outcome(layout, shape_for(layout)), one, shape_for(layout));
  }
  name_the_module(layout);
}

INSTANTIATE_TEST_SUITE_P(Table, Layouts, testing::ValuesIn(table()),
                         [](const auto& test) { return test.param.name(); });

// With ZeRO-1 a tensor's norm is summed in the parts that its owners hold, so the cut may change its last bit.
std::vector<TinyLayout> cut_layouts() {
  std::vector<TinyLayout> layouts = table();
  std::erase_if(layouts,
                [](const TinyLayout& layout) { return layout.pp == 1 || (layout.zero && layout.dp * layout.cp > 1); });
  return layouts;
}

class CutLayouts : public Layouts {};

TEST_P(CutLayouts, PipelineCutChangesNoBit) {
  TinyLayout layout = GetParam();
  const Shape shape = shape_for(layout);
  const Outcome& cut = outcome(layout, shape);
  if (layout.vpp > 1 || !layout.schedule.empty()) {
    TinyLayout unbroken = layout;
    unbroken.vpp = 1;
    unbroken.schedule.clear();
    expect_equal(cut, outcome(unbroken, shape));
  }
  layout.pp = layout.vpp = 1;
  layout.schedule.clear();
  expect_equal(cut, outcome(layout, shape));
}

INSTANTIATE_TEST_SUITE_P(Table, CutLayouts, testing::ValuesIn(cut_layouts()),
                         [](const auto& test) { return test.param.name(); });

class TiedLayouts : public Layouts {};

TEST_P(TiedLayouts, AgreesWithOneRank) {
  const TinyLayout layout = GetParam();
  const Shape shape = shape_for(layout);
  if (layout.tp == 1 && layout.dp == 1) {
    expect_equal(outcome(layout, shape, true), outcome({}, shape, true));
  } else {
    expect_near(outcome(layout, shape, true), outcome({}, shape, true), shape);
  }
  name_the_module(layout, true);
}

INSTANTIATE_TEST_SUITE_P(Table, TiedLayouts,
                         testing::Values(TinyLayout{1, 2, 1, false, false}, TinyLayout{1, 2, 1, false, false, 2},
                                         TinyLayout{1, 4, 1, false, false}, TinyLayout{2, 2, 1, true, true, 2},
                                         TinyLayout{2, 1, 2, true, false}, TinyLayout{1, 2, 2, true, false},
                                         TinyLayout{1, 1, 4, 2}, TinyLayout{2, 1, 2, 2, true}, TinyLayout{1, 2, 2, 2},
                                         TinyLayout{2, 2, 2, 2, true, 1, "zb-v"}, TinyLayout{1, 1, 4, 3},
                                         TinyLayout{1, 2, 2, 3}, TinyLayout{2, 2, 2, 3, true, 1, "zb-v"},
                                         TinyLayout{1, 2, 1, false, false, 1, "zb-v"},
                                         TinyLayout{1, 4, 1, false, false, 1, "zb-h1"},
                                         TinyLayout{2, 2, 1, true, true, 1, "dualpipev detached"}),
                         [](const auto& test) { return test.param.name(); });

// Stages with other numbers of layers, some with none, and a continuation on one rank.
struct Uneven {
  const char* name;
  TinyLayout layout;
  std::vector<int64_t> list;  // or, if it is empty, text
  const char* text = "";
  bool tied = false;
  std::vector<int64_t> noops = {};
};

class UnevenStages : public Layouts {};

TEST_F(UnevenStages, AgreeWithOneRankThatAlsoContinuesThem) {
  const std::vector<Uneven> table = {
      {"list", {1, 2, 1}, {1, 3}},
      {"list of chunks", {1, 2, 1, false, false, 2}, {1, 0, 2, 1}},
      {"embedding and loss alone", {1, 4, 1}, {}, "E|tt|tt|L", true},
      {"embedding and loss alone, in chunks", {1, 2, 1}, {}, "E|tt|t|tL"},
      {"ZeRO-1", {2, 2, 2, true, true}, {3, 1}, "", true},
      {"list of chunks in a V", {1, 2, 1, false, false, 1, "zb-v"}, {2, 1, 0, 1}, "", true},
      {"no-op layers", {1, 2, 1}, {}, "", false, {0, 5}},
      {"no-op layers of chunks", {1, 2, 1, false, false, 2}, {}, "", true, {0, 2, 3, 7}},
      {"no-op layers in a V", {1, 2, 1, false, false, 1, "zb-v"}, {}, "", false, {0, 1, 3, 7}},
      {"embedding and loss alone, in a V", {1, 2, 1, false, false, 1, "dualpipev detached"}, {}, "E|tt|tt|L"},
  };
  for (const Uneven& row : table) {
    SCOPED_TRACE(row.name);
    test::TemporaryFolder folder;
    const Shape shape;
    const bool same_bits = row.layout.tp == 1 && row.layout.dp == 1;
    const auto configure = [&](const TinyLayout& layout) {
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = shape.layers;
      config.model.untie_embeddings_and_output_weights = !row.tied;
      config.training.train_iters = kSteps;
      config.checkpoint.save = folder / "checkpoints";
      return config;
    };
    train::TrainerConfig uneven = configure(row.layout);
    uneven.training.exit_interval = kSteps / 2;
    if (row.layout.vpp > 1) {
      uneven.parallel.num_layers_per_virtual_pipeline_stage.reset();
      uneven.parallel.num_virtual_stages_per_pipeline_rank = row.layout.vpp;
    }
    uneven.parallel.num_layer_list = row.list;
    uneven.parallel.noop_layers = row.noops;
    uneven.model.num_layers += static_cast<int64_t>(row.noops.size());
    uneven.parallel.pipeline_model_parallel_layout = row.text;
    Outcome seen;
    seen.summary = test::run_on_threads(uneven, row.layout.ranks());
    train::TrainerConfig one = configure({});
    one.checkpoint.load = folder / "checkpoints";
    const train::RunSummary continued = test::run_on_threads(one, 1);
    seen.summary.steps.insert(seen.summary.steps.end(), continued.steps.begin(), continued.steps.end());
    seen.weights = test::read_tensors(continued.checkpoint, core::TensorRole::kParam);
    const Outcome& expected = outcome({}, shape, row.tied);
    same_bits ? expect_equal(seen, expected) : expect_near(seen, expected, shape);
  }
}

// Lists at random: half of a run on them, a quarter on even stages, and the rest on them again.
TEST_F(UnevenStages, RandomListsContinueOnEvenStagesAndBack) {
  std::mt19937 random(20261126);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  constexpr int kShort = 20;
  test::TemporaryFolder reference;
  train::TrainerConfig one = test::tiny_config(reference.path());
  one.training.train_iters = kShort;
  const Outcome expected = test::outcome_of(one, 1, reference / "checkpoints");
  for (int number = 0; number < 10; ++number) {
    TinyLayout layout{.tp = 1, .pp = below(2) == 0 ? 2 : 4, .vpp = static_cast<int>(1 + below(2))};
    if (number % 3 == 2) layout.vpp = 1, layout.schedule = "zb-v";
    std::vector<int64_t> list(static_cast<size_t>(layout.pp * layout.chunks()));
    for (int layer = 0; layer < 4; ++layer) ++list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
    SCOPED_TRACE(core::cat(layout.name(), ": ", list));
    test::TemporaryFolder folder;
    const auto run = [&](const TinyLayout& on, const std::vector<int64_t>& layers, int end) {
      train::TrainerConfig config = test::tiny_config(folder.path(), on);
      config.parallel.num_layer_list = layers;
      config.training.train_iters = kShort;
      config.training.exit_interval = end;
      config.checkpoint.save = config.checkpoint.load = folder / "checkpoints";
      return test::run_on_threads(config, on.ranks());
    };
    Outcome seen;
    for (const auto& [on, layers, end] :
         {std::tuple(layout, list, kShort / 2), std::tuple(TinyLayout{1, 2, 1}, std::vector<int64_t>(), 3 * kShort / 4),
          std::tuple(layout, list, kShort)}) {
      const train::RunSummary part = run(on, layers, end);
      seen.summary.steps.insert(seen.summary.steps.end(), part.steps.begin(), part.steps.end());
      seen.weights = test::read_tensors(part.checkpoint, core::TensorRole::kParam);
    }
    expect_equal(seen, expected);
  }
}

// In bf16 a layout that re-associates sums rounds other partial sums, each to 8 bits (1 part in 2^9), and 50 steps
// accumulate that.
class Bf16Layouts : public testing::TestWithParam<TinyLayout> {};

TEST_P(Bf16Layouts, AgreesWithOneRankToTheRoundingOfBf16) {
  constexpr double kLossTolerance = 1.0 / 128, kNormTolerance = 1.0 / 8;
  test::TemporaryFolder folder;
  const auto run = [&](const TinyLayout& layout) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.training.train_iters = kSteps;
    config.training.bf16 = true;
    return test::run_on_threads(config, layout.ranks()).steps;
  };
  const std::vector<train::StepMetrics> one = run({}), cut = run(GetParam());
  ASSERT_EQ(cut.size(), one.size());
  double loss = 0, norm = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    loss = std::max(loss, std::abs(cut[i].loss / one[i].loss - 1));
    norm = std::max(norm, std::abs(cut[i].grad_norm / one[i].grad_norm - 1));
  }
  std::printf("relative distances: loss %.1e, gradient norm %.1e\n", loss, norm);
  if (GetParam().tp == 1 && GetParam().dp == 1) {
    EXPECT_EQ(loss, 0);
    EXPECT_EQ(norm, 0);
  }
  EXPECT_LT(loss, kLossTolerance);
  EXPECT_LT(norm, kNormTolerance);
}

INSTANTIATE_TEST_SUITE_P(Table, Bf16Layouts,
                         testing::Values(TinyLayout{1, 2, 1, false, false}, TinyLayout{1, 1, 2, true, false},
                                         TinyLayout{2, 1, 1, false, true}, TinyLayout{2, 2, 2, true, true},
                                         TinyLayout{1, 1, 2, 2}, TinyLayout{2, 2, 2, 2, true}, TinyLayout{1, 1, 2, 3},
                                         TinyLayout{2, 2, 2, 3, true}),
                         [](const auto& test) { return test.param.name(); });

// How virtual stages affect recomputation and early receives.
class VirtualStages : public testing::Test {
 protected:
  train::RunSummary run(const std::function<void(train::TrainerConfig&)>& change) {
    train::TrainerConfig config = test::tiny_config(folder_.path(), {1, 2, 1, false, false, 2});
    config.training.train_iters = 5;
    change(config);
    return test::run_on_threads(config, 2);
  }
  static void expect_same_steps(const train::RunSummary& a, const train::RunSummary& b) {
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
      EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
    }
  }
  static int64_t peak(const train::RunSummary& summary) {
    return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(VirtualStages, RecomputationChangesNoBit) {
  const auto plain = run([](train::TrainerConfig&) {});
  const auto recomputed = run([](train::TrainerConfig& config) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
  });
  expect_same_steps(recomputed, plain);
  EXPECT_LT(peak(recomputed), peak(plain));
}

// With two micro-batches' worth of chunks in flight beyond what is kept; the last chunk of the last stage keeps all.
TEST_F(VirtualStages, RecomputationInTheScheduleChangesNoBit) {
  const auto configure = [](train::TrainerConfig& config) {
    config.model.num_layers = 8;
    config.training.global_batch_size = 8;
  };
  const auto plain = run(configure);
  const auto in_bubble = run([&](train::TrainerConfig& config) {
    configure(config);
    config.training.recompute_in_bubble = true;
  });
  expect_same_steps(in_bubble, plain);
  EXPECT_LT(peak(in_bubble), peak(plain));
  const auto full = [&](train::TrainerConfig& config) {
    configure(config);
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    config.training.recompute_num_layers = 2;
  };
  const auto at_backward = run(full);
  const auto in_advance = run([&](train::TrainerConfig& config) {
    full(config);
    config.training.recompute_in_advance = true;
  });
  expect_same_steps(in_advance, plain);
  EXPECT_LT(peak(in_advance), peak(plain));
  EXPECT_LE(in_advance.steps.back().executed_flops, at_backward.steps.back().executed_flops);
}

TEST_F(VirtualStages, LargerGroupsOfMicrobatchesChangeNoBitAndHoldMore) {
  const auto plain = run([](train::TrainerConfig& config) { config.training.global_batch_size = 8; });
  const auto grouped = run([](train::TrainerConfig& config) {
    config.training.global_batch_size = 8;  // in groups of 3, 3 and 2
    config.parallel.microbatch_group_size_per_virtual_pipeline_stage = 3;
  });
  expect_same_steps(grouped, plain);
  EXPECT_GT(peak(grouped), peak(plain));
}

TEST_F(VirtualStages, DeferredGradientsOfTheOutputLayerChangeNoBit) {
  const auto plain = run([](train::TrainerConfig&) {});
  for (const int64_t limit : {0, 1, 3}) {
    const auto deferred = run([&](train::TrainerConfig& config) {
      config.parallel.defer_embedding_wgrad_compute = true;
      config.parallel.wgrad_deferral_limit = limit;
    });
    expect_same_steps(deferred, plain);
  }
}

TEST_F(VirtualStages, ReceivesArePostedEarlyUnlessDisabled) {
  const auto early = run([](train::TrainerConfig&) {});
  const auto late = run([](train::TrainerConfig& config) { config.parallel.overlap_p2p_communication = false; });
  expect_same_steps(early, late);
  // The next chunk's input is allocated while this chunk is computed: [seq 16, batch 1, hidden 32] of fp32.
  EXPECT_EQ(peak(early) - peak(late), 16 * 32 * 4);
}

}  // namespace
}  // namespace ms
