// The actions of pipeline stages from traces with known times, and what messages alone say of a pipeline.
#include "profile/analysis/pipeline_actions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "profile/sections.h"
#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

using testing::ElementsAre;

class PipelineActionsTest : public JobTest {
 protected:
  // An action of a stage, with its kernel and its message in and out (-1: none), from one unit to another.
  struct Stage : Rank {
    using Rank::Rank;
    void act(const char* what, int from, int64_t start, int64_t end, int to) {
      if (from >= 0) receive(from, done, start);
      host(what, start, end);
      kernel("gemm", start, end);
      if (to >= 0) send(to, end - 1, end + 1);
      done = end;
    }
    int64_t done = 0;
  };

  // Two stages run two micro-batches by ZB-H1 in step 2: the first stage waits for hidden states never, for gradients
  // from 40 to 50. Step 1 has no actions.
  void load_two_stages(bool with_actions = true) {
    Stage zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
    for (Stage* stage : {&zero, &one}) {
      stage->host("iteration 1", 0, 5);
      stage->host("iteration 2", 8, 100);
      stage->done = 9;
    }
    const auto name = [&](const char* action) { return with_actions ? action : "work"; };
    zero.act(name("forward-microbatch"), -1, 10, 20, 1);
    zero.act(name("forward-microbatch"), -1, 20, 30, 1);
    zero.act(name("backward-input-microbatch"), 1, 50, 60, -1);
    zero.act(name("backward-weight-microbatch"), -1, 60, 65, -1);
    zero.act(name("backward-input-microbatch"), 1, 80, 90, -1);
    zero.act(name("backward-weight-microbatch"), -1, 90, 95, -1);
    one.act(name("forward-microbatch"), 0, 25, 35, -1);
    one.act(name("backward-input-microbatch"), -1, 35, 45, 0);
    one.act(name("forward-microbatch"), 0, 46, 56, -1);
    one.act(name("backward-input-microbatch"), -1, 56, 66, 0);
    one.act(name("backward-weight-microbatch"), -1, 67, 70, -1);
    one.act(name("backward-weight-microbatch"), -1, 70, 75, -1);
    zero.maker.finish();
    one.maker.finish();
  }
  // One stage after the other, a micro-batch: the actions say what they work on, and the backward of the first stage is
  // in two parts around a forward's.
  void load_named(bool with_all_messages) {
    Stage zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
    for (Stage* stage : {&zero, &one}) stage->host("iteration 1", 0, 100);
    const auto act = [&](Stage& stage, const char* what, int64_t start, int64_t end, int64_t microbatch) {
      stage.maker.action(what, start * kUnit, end * kUnit, microbatch, 0);
      stage.kernel("gemm", start, end);
    };
    const auto pass = [&](Stage& from, Stage& to, int sender, int64_t at) {
      if (!with_all_messages && at > 50) return;
      from.send(1 - sender, at, at + 1);
      to.receive(sender, at, at + 1);
    };
    act(zero, "forward-microbatch", 10, 20, 0);
    pass(zero, one, 0, 19);
    act(one, "forward-microbatch", 21, 31, 0);
    act(one, "backward-microbatch", 31, 41, 0);
    pass(one, zero, 1, 40);
    act(zero, "backward-microbatch", 42, 50, 0);
    act(zero, "forward-microbatch", 50, 60, 1);
    pass(zero, one, 0, 59);
    act(zero, "backward-microbatch", 61, 65, 0);
    act(one, "forward-microbatch", 62, 72, 1);
    act(one, "backward-microbatch", 72, 82, 1);
    pass(one, zero, 1, 81);
    act(zero, "backward-microbatch", 83, 95, 1);
    zero.maker.finish();
    one.maker.finish();
  }
  // A pipeline whose last stage sends to the first: 3 stages, v chunks, m micro-batches, as many messages as these
  // have.
  void load_ring(int64_t chunks, int64_t microbatches) {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(std::make_unique<Rank>(folder_.path(), r, 3));
    int64_t now = 1;
    const auto pass = [&](int from, int to, int64_t count) {
      for (int64_t i = 0; i < count; ++i, ++now) {
        ranks[static_cast<size_t>(from)]->kernel("gemm", now, now + 1);
        ranks[static_cast<size_t>(from)]->send(to, now, now + 1);
        ranks[static_cast<size_t>(to)]->receive(from, now, now + 1);
      }
    };
    for (const bool forward : {true, false}) {
      for (int s = 0; s < 2; ++s)
        forward ? pass(s, s + 1, chunks * microbatches) : pass(2 - s, 1 - s, chunks * microbatches);
      forward ? pass(2, 0, (chunks - 1) * microbatches) : pass(0, 2, (chunks - 1) * microbatches);
    }
    for (const auto& rank : ranks) rank->maker.finish();
  }

  std::optional<Pipeline> find_pipeline() { return pipeline(devices_, comms_, cross_); }
};

TEST_F(PipelineActionsTest, ActionsOfTheLastCommonStepWithTheirMicrobatches) {
  load_two_stages();
  load_all();
  auto pipeline = find_pipeline();
  ASSERT_TRUE(pipeline);
  const auto actions = pipeline_actions(devices_, comms_, cross_, *pipeline);
  ASSERT_TRUE(actions);
  EXPECT_EQ(actions->step, 2);
  ASSERT_EQ(actions->stages.size(), 2u);
  EXPECT_EQ(actions->end - actions->start, 85 * kUnit);
  std::string text;
  for (const StageActions& stage : actions->stages) {
    for (const PipelineAction& action : stage.actions) {
      text += action.letter + std::to_string(action.microbatch);
      EXPECT_EQ(action.chunk, 0);
    }
    text += " ";
  }
  EXPECT_EQ(text, "F0F1I0W0I1W1 F0I0F1I1W0W1 ");
  ASSERT_TRUE(actions->flow);
  EXPECT_EQ(actions->flow->microbatches, 2);
  EXPECT_EQ(actions->flow->chunks, 1);
  EXPECT_FALSE(actions->flow->in_a_v);
}

TEST_F(PipelineActionsTest, IdleTimesAndTotalsAddUp) {
  load_two_stages();
  load_all();
  const auto actions = pipeline_actions(devices_, comms_, cross_, *find_pipeline());
  ASSERT_TRUE(actions);
  const auto waits = [](const StageActions& stage) {
    std::vector<int64_t> units;
    for (const int64_t ns : stage.waits_ns) units.push_back(ns / kUnit);
    return units;
  };
  // fill, hidden, gradient, other, drain
  EXPECT_THAT(waits(actions->stages[0]), ElementsAre(0, 0, 20 + 15, 0, 0));
  EXPECT_THAT(waits(actions->stages[1]), ElementsAre(15, 1, 0, 1, 20));
  const auto totals = [](const StageActions& stage) {
    std::vector<std::pair<int64_t, int64_t>> units;  // F B I W R
    for (const StageActions::Total& total : stage.totals) units.emplace_back(total.count, total.ns / kUnit);
    return units;
  };
  using P = std::pair<int64_t, int64_t>;
  EXPECT_THAT(totals(actions->stages[0]), ElementsAre(P(2, 20), P(0, 0), P(2, 20), P(2, 10), P(0, 0)));
  EXPECT_THAT(totals(actions->stages[1]), ElementsAre(P(2, 20), P(0, 0), P(2, 20), P(2, 8), P(0, 0)));
}

TEST_F(PipelineActionsTest, TakesWhatTheAnnotationsSayInParts) {
  for (const bool with_all_messages : {true, false}) {
    load_named(with_all_messages);
    load_all();
    const auto pipeline = find_pipeline();
    ASSERT_TRUE(pipeline);
    const auto actions = pipeline_actions(devices_, comms_, cross_, *pipeline);
    ASSERT_TRUE(actions);
    std::string text;
    for (const PipelineAction& action : actions->stages[0].actions)
      text += action.letter + std::to_string(action.microbatch) + std::to_string(action.chunk) + " ";
    EXPECT_EQ(text, "F00 B00 F10 B00 B10 ");
    using T = std::pair<int64_t, int64_t>;
    const auto total = [&](size_t letter) {
      const StageActions::Total& of = actions->stages[0].totals[letter];
      return T(of.count, of.ns / kUnit);
    };
    EXPECT_EQ(total(0), T(2, 20));
    EXPECT_EQ(total(1), T(2, 24)) << "three parts";
    // fill, hidden, gradient, other, drain: between the parts there is other work, before B1 a wait.
    EXPECT_EQ(actions->stages[0].waits_ns[2] / kUnit, 22 + 18);
    EXPECT_EQ(actions->stages[0].waits_ns[3] / kUnit, 1);
    ASSERT_EQ(actions->flow.has_value(), with_all_messages) << "some are missing";
    if (!with_all_messages) continue;
    EXPECT_EQ(actions->flow->microbatches, 2);
    EXPECT_EQ(actions->flow->chunks, 1);
    EXPECT_FALSE(actions->flow->in_a_v);
  }
}

// The mean times are F 10, I 10, W 4.5. Stage 1 starts at 10 and computes I of the second micro-batch until 50; stage 0
// then has an I and a W left: 64.5, of which each stage computes 49.
TEST_F(PipelineActionsTest, TheIdealIsThatOfTheActionsNotOf1F1B) {
  load_two_stages();
  load_all();
  auto pipeline = find_pipeline();
  EXPECT_EQ(pipeline->ideal_from, IdealFrom::kAssumed);
  EXPECT_DOUBLE_EQ(*pipeline->ideal_ratio, 1.0 / 3);
  use_actions(*pipeline_actions(devices_, comms_, cross_, *pipeline), *pipeline);
  EXPECT_EQ(pipeline->ideal_from, IdealFrom::kActions);
  EXPECT_EQ(pipeline->microbatches, 2);
  EXPECT_EQ(pipeline->chunks, 1);
  EXPECT_NEAR(*pipeline->ideal_ratio, 1 - 49 / 64.5, 1e-9);
  EXPECT_NEAR(pipeline->bubble_ratio, *pipeline->ideal_ratio + pipeline->imbalance + pipeline->transfer_and_gaps,
              1e-12);
}

TEST_F(PipelineActionsTest, MessagesThatDoNotFitLeaveTheIdealUnknown) {
  load_two_stages();
  {
    Rank again = rank(1, 2);  // without the backwards
    again.host("iteration 2", 8, 100);
    again.receive(0, 9, 25);
    again.host("forward-microbatch", 25, 35);
    again.kernel("gemm", 25, 35);
    again.send(0, 35, 36);
    again.maker.finish();
  }
  load_all();
  auto pipeline = find_pipeline();
  ASSERT_TRUE(pipeline);
  const auto actions = pipeline_actions(devices_, comms_, cross_, *pipeline);
  ASSERT_TRUE(actions);
  EXPECT_FALSE(actions->flow);
  EXPECT_EQ(actions->stages[0].actions[0].microbatch, -1);
  use_actions(*actions, *pipeline);
  EXPECT_EQ(pipeline->microbatches, 0);
  EXPECT_EQ(pipeline->ideal_ratio, std::nullopt);
}

TEST_F(PipelineActionsTest, WithoutAnnotationsThereAreNone) {
  load_two_stages(/*with_actions=*/false);
  load_all();
  const auto pipeline = find_pipeline();
  ASSERT_TRUE(pipeline);
  EXPECT_EQ(pipeline_actions(devices_, comms_, cross_, *pipeline), std::nullopt);
  EXPECT_EQ(pipeline->ideal_from, IdealFrom::kAssumed) << "a V of one micro-batch would look the same";
  EXPECT_EQ(pipeline->messages, 2);
}

TEST_F(PipelineActionsTest, InterleavedChunksFollowFromTheMessagesOfARing) {
  load_ring(2, 4);
  load_all();
  const auto pipeline = find_pipeline();
  ASSERT_TRUE(pipeline);
  EXPECT_EQ(pipeline->ideal_from, IdealFrom::kMessages);
  EXPECT_EQ(pipeline->stages, 3);
  EXPECT_EQ(pipeline->microbatches, 4);
  EXPECT_EQ(pipeline->chunks, 2);
  EXPECT_DOUBLE_EQ(*pipeline->ideal_ratio, 2.0 / (2 * 4 + 2));
}

TEST_F(PipelineActionsTest, SaysWhichTracesAreMissing) {
  load_chain();
  EXPECT_EQ(missing_stages(comms_), "");
  EXPECT_TRUE(find_pipeline()->missing.empty());
  std::filesystem::remove(folder_.path() / "rank_00002.mstrace");
  load_all();
  EXPECT_EQ(missing_stages(comms_),
            "the pipeline of rank 1 continues in rank 2: give their traces too (mstrain records all ranks with "
            "--profile-ranks -1)");
  std::filesystem::remove(folder_.path() / "rank_00001.mstrace");
  store_ = load({folder_.path().string()}, {});
  const Results results = analyze(store_, {&sections::kPipeline});
  EXPECT_EQ(results.get<Pipeline>(), nullptr);
  // The group of the messages has rank 2 too.
  EXPECT_THAT(results.warnings, ElementsAre(testing::StartsWith("the pipeline of rank 0 continues in ranks 1, 2: ")));
  EXPECT_TRUE(analyze(store_, {&sections::kLinks}).warnings.empty()) << "only who asks for the pipeline is told";
}

TEST_F(PipelineActionsTest, OfAPartOfThePipelineTheIdealIsUnknown) {
  load_two_stages();
  {
    Rank one = rank(1, 3);  // the same, which also has a stage after it
    one.host("iteration 2", 8, 100);
    for (const int64_t start : {25, 46}) {
      one.receive(0, 20, start);
      one.kernel("gemm", start, start + 10);
      one.send(2, start + 10, start + 11);
      one.send(0, start + 10, start + 11);
    }
    one.maker.finish();
  }
  store_ = load({folder_.path().string()}, {.force = true});
  const Results results = analyze(store_, {&sections::kPipeline});
  const auto* pipeline = results.get<Pipeline>();
  ASSERT_NE(pipeline, nullptr);
  EXPECT_THAT(pipeline->missing, ElementsAre(2));
  EXPECT_EQ(pipeline->ideal_ratio, std::nullopt);
  EXPECT_EQ(results.warnings.size(), 1u);
}

}  // namespace
}  // namespace ms::profile
