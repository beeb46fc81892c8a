// What overlaps communication of tensor parallelism with computation changes no bit, and shows in the trace: sums and
// gathers are under way while products are computed that do not need them.
#include "train/features/tp_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/trace/recorder.h"
#include "profile/ingest/load.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/random_batch.h"
#include "train/loop/step.h"

namespace ms::train {
namespace {

using test::TinyLayout;

TrainerConfig configured(const test::TemporaryFolder& folder, const TinyLayout& layout, int64_t seq) {
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.seq_length = config.model.max_position_embeddings = seq;
  return config;
}

struct Case {
  TinyLayout layout;
  bool bf16 = false;
  int64_t seq = 128;
};

class TpOverlap : public testing::TestWithParam<Case> {};

TEST_P(TpOverlap, ChangesNoBit) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder, GetParam().layout, GetParam().seq);
  config.training.bf16 = GetParam().bf16;
  config.training.train_iters = 3;
  config.model.add_bias_linear = true;
  const int ranks = GetParam().layout.ranks();
  const RunSummary on = test::run_on_threads(config, ranks);
  config.parallel.tp_comm_overlap = config.parallel.use_ascend_coc = config.parallel.use_ascend_mc2 = false;
  config.parallel.coc_parallel_num = 1;
  const RunSummary off = test::run_on_threads(config, ranks);
  ASSERT_EQ(on.steps.size(), off.steps.size());
  for (size_t i = 0; i < on.steps.size(); ++i) {
    EXPECT_EQ(on.steps[i].loss, off.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(on.steps[i].grad_norm, off.steps[i].grad_norm) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Switches, TpOverlap,
    testing::Values(Case{{2, 1, 1, false, false, 1, "", "tp"}}, Case{{2, 1, 1, false, true, 1, "", "tp"}, true},
                    Case{{2, 1, 1, false, true, 1, "", "tp"}, false, 32},
                    Case{{2, 1, 1, false, true, 1, "", "tp"}, true, 32}, Case{{2, 2, 1, false, true, 1, "zb-h1", "tp"}},
                    Case{{2, 1, 1, false, false, 1, "", "coc4"}}, Case{{2, 1, 1, false, true, 1, "", "coc4"}},
                    Case{{4, 1, 1, false, true, 1, "", "coc2"}, true}, Case{{2, 2, 1, false, true, 1, "zb-h1", "coc2"}},
                    Case{{2, 1, 1, false, true, 1, "", "mc2"}, false, 1024}),
    [](const auto& test) {
      return test.param.layout.name() + (test.param.bf16 ? "_bf16" : "") + (test.param.seq < 128 ? "_short" : "");
    });

TEST(TensorOverlap, PartsDivideTheSequence) {
  using layout::TensorOverlap;
  const TensorOverlap four{.backward = true, .parts = 4},
      automatic{.backward = true, .parts = TensorOverlap::kAutomatic};
  EXPECT_EQ(four.product_parts(16, 1), 4);
  EXPECT_EQ(four.product_parts(6, 1), 3);
  EXPECT_EQ(four.product_parts(7, 1), 1);
  EXPECT_EQ(automatic.product_parts(256, 1), 1);
  EXPECT_EQ(automatic.product_parts(256, 2), 2);
  EXPECT_EQ(automatic.product_parts(2048, 1), 8);
}

struct Interval {
  int64_t begin, end;
};
struct Traced {
  std::vector<Interval> sums, gathers;                      // over TP, of more than a few elements
  std::vector<Interval> forward_products, input_gradients;  // kernels
  std::vector<Interval> weight_gradients;
};

// How many of `messages` are under way when one of `kernels` begins.
int64_t beside(const std::vector<Interval>& messages, const std::vector<Interval>& kernels) {
  return std::ranges::count_if(messages, [&](const Interval& message) {
    return std::ranges::any_of(
        kernels, [&](const Interval& kernel) { return message.begin < kernel.begin && kernel.begin < message.end; });
  });
}

// Rank 0's second step of a micro-batch on a slow link.
Traced traced_step(const TinyLayout& layout, const core::LinkDelay& link = {.latency_s = 2e-3}) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder, layout, 64);
  config.training.global_batch_size = 1;
  std::vector<core::trace::Recorder> recorders(2);
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        core::trace::Recorder& recorder = recorders[static_cast<size_t>(endpoint.rank())];
        Rank rank(endpoint, config);
        rank.ops.recorder = &recorder;
        rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
        GptStage stage(*rank.state, *rank.parameters);
        StepRunner runner(*rank.state, stage);
        const std::vector<Microbatch> batch = random_batch(rank.config, 1, 1, 0);
        runner.train(batch, 1);
        recorder.start({.rank = endpoint.rank(), .world_size = 2, .save_path = folder / "trace"});
        runner.train(batch, 1);
        recorder.stop();
      },
      60, link, {}, recorders);
  Traced result;
  const profile::Store store = profile::load({folder / "trace"}, {.ranks = {0}});
  const profile::RankTrace& trace = *store.ranks.at(0);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Interval interval{trace.events.ts[i], trace.events.end(i)};
    const std::string& name = trace.names[trace.events.name[i]];
    if (trace.events.comm[i] != 0) {
      const profile::CommArgs& comm = trace.comms[trace.events.comm[i]];
      if (trace.names[comm.group] != "tp" || comm.in_elements < 500) continue;
      (trace.names[comm.op] == "allgather" ? result.gathers : result.sums).push_back(interval);
    } else if (trace.side(i) == profile::Side::kDevice) {
      if (name == "linear") result.forward_products.push_back(interval);
      if (name == "linear_dgrad") result.input_gradients.push_back(interval);
      if (name == "linear_wgrad") result.weight_gradients.push_back(interval);
    }
  }
  return result;
}

constexpr int64_t kLayers = 4;

TEST(TpOverlapTrace, HasSumsBesideTheGradientsOfWeights) {
  const Traced off = traced_step({2, 1}), on = traced_step({2, 1, 1, false, false, 1, "", "tp"});
  EXPECT_EQ(beside(off.sums, off.weight_gradients), 0);
  EXPECT_GE(beside(on.sums, on.weight_gradients), 2 * kLayers);  // of linear_qkv and linear_fc1
  EXPECT_EQ(on.sums.size(), off.sums.size());
}

TEST(TpOverlapTrace, HasGathersBesideTheGradientsOfInputs) {
  const Traced off = traced_step({2, 1, 1, false, true}), on = traced_step({2, 1, 1, false, true, 1, "", "tp"});
  EXPECT_EQ(beside(off.gathers, off.input_gradients) + beside(off.sums, off.weight_gradients), 0);
  // Of linear_qkv and linear_fc1 the gather of what they read, of the others that of their results' gradients.
  EXPECT_GE(beside(on.gathers, on.input_gradients), 4 * kLayers);
  EXPECT_GE(beside(on.sums, on.weight_gradients), 2 * kLayers);
  EXPECT_EQ(on.gathers.size(), off.gathers.size());
}

// Of a product in two parts one message is beside the other part: the second gather, or the first sum. On a link that
// carries one after the other; on a busy machine some end before the other part begins.
TEST(TpOverlapTrace, HasMessagesOfAPartBesideTheProductOfAnother) {
  const core::LinkDelay link{.bytes_per_s = 5e5};
  const Traced off = traced_step({2, 1, 1, false, true}, link);
  const Traced on = traced_step({2, 1, 1, false, true, 1, "", "coc2"}, link);
  EXPECT_EQ(beside(off.gathers, off.forward_products) + beside(off.sums, off.forward_products), 0);
  EXPECT_GE(beside(on.gathers, on.forward_products), kLayers);     // of 2 a layer
  EXPECT_GE(beside(on.sums, on.forward_products), kLayers);        // the same
  EXPECT_GE(beside(on.gathers, on.input_gradients), 2 * kLayers);  // of 4 a layer: of dy, and of x
  // Of a column-parallel layer one product of this rank's rows and two of the other's; of a row-parallel one two of
  // each.
  EXPECT_EQ(off.forward_products.size(), 4 * kLayers);
  EXPECT_EQ(on.forward_products.size(), 2 * (3 + 4) * kLayers);
}

}  // namespace
}  // namespace ms::train
