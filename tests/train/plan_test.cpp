// The plan of a step against what the ranks of a run count: operations and bytes by group, FLOPs, and memory that
// lasts, exactly.
#include "train/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/layout/formulas/communication.h"
#include "core/layout/process_group_table.h"
#include "tests/support/planned_run.h"

namespace ms {
namespace {

using test::TinyLayout;

struct Row {
  TinyLayout layout;
  size_t mode;
};

class Plan : public testing::TestWithParam<Row> {};

TEST_P(Plan, EqualsTheRunOnEveryRank) {
  const TinyLayout& layout = GetParam().layout;
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  test::set_layers(config, 8);
  config.training.global_batch_size = 8;
  test::kPlanModes[GetParam().mode].set(config);
  test::expect_plan_equals_run(config, layout.ranks());
}

// Every covering layout of tests/train/layouts_test.cpp, and every mode with the layouts that it can concern.
std::vector<Row> rows() {
  const TinyLayout layouts[] = {
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
      {1, 1, 2, 2, false, 1},
      {1, 1, 4, 2, false, 1},
      {1, 2, 2, 2, false, 2},
      {2, 1, 2, 2, false, 1},
      {2, 2, 2, 2, true, 1},
      {1, 2, 2, 2, false, 1, "zb-h1"},
      {2, 2, 2, 2, true, 1, "zb-v"},
      {1, 2, 2, 2, false, 2, "nanopipe"},
      {1, 1, 2, 3, false, 1},
      {1, 1, 4, 3, false, 1},
      {1, 2, 2, 3, false, 2},
      {2, 2, 2, 3, true, 1},
      {1, 2, 2, 3, false, 1, "zb-h1"},
      {2, 2, 2, 3, true, 1, "zb-v"},
      {1, 2, 1, false, false, 1, "zb-h1"},
      {2, 2, 1, false, true, 1, "zb-h1"},
      {1, 4, 1, false, false, 1, "zb-h1"},
      {1, 2, 1, false, false, 1, "zb-v"},
      {2, 2, 2, true, true, 1, "zb-v"},
      {1, 4, 1, false, false, 1, "zb-v"},
      {1, 2, 1, false, false, 1, "dualpipev"},
      {2, 2, 1, false, false, 1, "dualpipev"},
      {2, 2, 1, false, true, 1, "dualpipev detached"},
      {2, 2, 1, false, true, 1, "dualpipev delayed"},
      {1, 4, 1, false, false, 1, "dualpipev detached"},
      {1, 4, 1, false, false, 2, "nanopipe"},
      {2, 2, 1, false, true, 2, "nanopipe"},
      {2, 1, 1, false, false, 1, "", "tp"},
      {2, 1, 2, true, true, 1, "", "tp"},
      {4, 1, 1, false, false, 1, "", "coc2"},
      {2, 1, 1, false, true, 1, "", "coc4"},
      {2, 2, 1, false, true, 1, "zb-h1", "coc2"},
      {2, 2, 1, false, false, 1, "dualpipev", "tp"},
      {1, 1, 1, false, false, 1, "", "", 2, "a2a"},
      {1, 1, 2, true, false, 1, "", "", 4, "a2a"},
      {2, 2, 1, true, true, 1, "", "", 2, "a2a"},
      {1, 2, 1, false, false, 2, "", "", 2, "a2a"},
      {2, 1, 1, 2, true, 1, "", "coc2", 2, "a2a"},
      {1, 2, 1, 3, false, 1, "zb-v", "", 2, "a2a"},
      {1, 2, 1, false, false, 1, "dualpipev", "", 2, "a2a"},
      {1, 1, 1, false, false, 1, "", "", 8, "a2a"},
      {1, 1, 1, false, false, 1, "", "", 2, "all_gather"},
      {1, 1, 2, true, false, 1, "", "", 4, "all_gather"},
      {2, 2, 1, true, true, 1, "", "", 2, "all_gather"},
      {1, 2, 1, 2, false, 2, "", "", 2, "all_gather"},
      {1, 2, 1, false, false, 1, "zb-h1", "", 2, "all_gather"},
      {1, 1, 1, false, false, 1, "", "", 2, "p2p"},
      {1, 1, 2, true, false, 1, "", "", 4, "p2p"},
      {2, 2, 1, true, true, 1, "", "", 2, "p2p"},
      {1, 2, 1, 2, false, 2, "", "", 2, "p2p"},
      {1, 2, 1, false, false, 1, "dualpipev", "", 2, "p2p"},
      {1, 1, 1, false, false, 1, "", "", 4, "p2p w2"},
      {1, 1, 1, true, false, 1, "", "", 8, "p2p w4"},
      {1, 1, 1, false, false, 1, "", "", 4, "p2p half"},
      {1, 1, 1, false, false, 1, "", "", 8, "p2p w2 full"},
      {2, 1, 1, true, true, 1, "", "", 4, "p2p full i2"},
      {1, 2, 1, 2, false, 2, "", "", 4, "a2a+p2p half i2"},
      {1, 1, 1, false, false, 1, "", "", 4, "adaptive"},
      {2, 1, 1, true, true, 1, "", "", 4, "adaptive"},
      {1, 2, 1, 2, false, 2, "", "", 4, "hybrid_adaptive"},
      {1, 1, 1, false, false, 1, "", "", 4, "a2a+p2p"},
      {1, 1, 1, true, false, 1, "", "", 8, "a2a+p2p u4"},
      {1, 1, 1, false, false, 1, "", "", 8, "a2a+p2p w2"},
      {2, 1, 1, true, true, 1, "", "", 4, "a2a+p2p"},
      {1, 2, 1, 2, false, 2, "", "", 4, "a2a+p2p"},
      {1, 1, 1, false, false, 1, "", "", 2, "a2a,p2p,all_gather"},
      {1, 1, 1, true, false, 1, "", "", 8, "a2a+p2p,a2a,p2p,all_gather"},
      {2, 1, 1, true, true, 1, "", "", 4, "a2a,a2a+p2p"},
      {1, 2, 1, 2, false, 2, "", "", 4, "p2p,a2a+p2p,a2a full i2"},
      {1, 2, 1, 3, false, 1, "zb-v", "", 2, "a2a,all_gather"},
      {1, 2, 1, false, false, 1, "dualpipev", "", 2, "p2p,a2a"},
      {1, 1, 1, false, false, 1, "", "", 4, "a2a,p2p w2"},
  };
  std::vector<Row> table;
  for (const TinyLayout& layout : layouts) {
    for (size_t mode = 0; mode < std::size(test::kPlanModes); ++mode) table.push_back({layout, mode});
  }
  return table;
}

INSTANTIATE_TEST_SUITE_P(Table, Plan, testing::ValuesIn(rows()), [](const auto& test) {
  return test.param.layout.name() + "_" + test::kPlanModes[test.param.mode].name;
});

TEST(Plan, RefusesMoreActionsThanCanBeListed) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {1, 2, 1});
  config.model.vocab_size = 257;
  config.training.train_iters = 1;
  config.training.global_batch_size = int64_t{1} << 30;
  config.resolve_and_validate(2);
  try {
    const train::RunPlan plan(config.training_step(2), {}, {});
    FAIL() << "it has been listed";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("--global-batch-size"), std::string::npos) << e.what();
  }
}

train::RunPlan plan_of(const TinyLayout& layout, const std::function<void(train::TrainerConfig&)>& change) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 2;
  test::set_layers(config, 8);
  config.model.vocab_size = 257;
  change(config);
  config.resolve_and_validate(layout.ranks());
  return train::RunPlan(config.training_step(layout.ranks()), {}, {});
}

TEST(Plan, UnevenStagesTakeAsLongAsTheirFlops) {
  const auto planned = [](std::vector<int64_t> list) {
    return plan_of({1, 2, 1}, [&](train::TrainerConfig& config) { config.parallel.num_layer_list = list; });
  };
  const train::RunPlan even = planned({}), uneven = planned({7, 1});
  const nlohmann::json units = uneven.json()["schedule"]["forward_units"];
  EXPECT_EQ(even.json()["schedule"]["forward_units"], (nlohmann::json{1.0, 1.0}));
  EXPECT_NEAR(units[0].get<double>() + units[1].get<double>(), 2, 1e-9);
  const auto flops = [&](size_t stage) { return static_cast<double>(uneven.stages()[stage].executed_flops); };
  EXPECT_NEAR(units[0].get<double>() / units[1].get<double>(), flops(0) / flops(1), 1e-9);
  EXPECT_GT(uneven.json()["schedule"]["makespan"], even.json()["schedule"]["makespan"]);
  EXPECT_NE(even.text().find("all stages are taken as equal"), std::string::npos);
  EXPECT_NE(uneven.text().find("as long as the FLOPs of their layers"), std::string::npos);
}

// Every label of the drawing is a whole one, and none touches the next.
TEST(Plan, DrawingHasWholeLabels) {
  const train::RunPlan many =
      plan_of({1, 2, 1}, [](train::TrainerConfig& config) { config.training.global_batch_size = 16; });
  EXPECT_NE(many.text().find("F10 "), std::string::npos) << many.text();
  const train::RunPlan ahead = plan_of({1, 2, 1, false, false, 2}, [](train::TrainerConfig& config) {
    config.training.global_batch_size = 12;
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    config.training.recompute_num_layers = 1;
    config.training.recompute_in_advance = true;
  });
  std::istringstream lines(ahead.text().substr(ahead.text().find("schedule, one line")));
  const std::regex row("  +\\d+  ((([FBR]\\d+\\.\\d|[FBR]) +)|\\.)* *idle \\d+ %");
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" idle ") == std::string::npos || line.find(" units") != std::string::npos) continue;
    EXPECT_TRUE(std::regex_match(line, row)) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 2) << ahead.text();
}

// A backward that runs layers again takes longer; in advance it does not wait for the gradient first.
TEST(Plan, RecomputationTakesTimeInTheSchedule) {
  test::TemporaryFolder folder;
  const auto planned = [&](void (*change)(train::TrainerConfig&)) {
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 2, 1, false, false, 2});
    config.training.train_iters = 2;
    config.training.global_batch_size = 8;
    config.model.num_layers = 8;
    config.model.vocab_size = 257;
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    change(config);
    config.resolve_and_validate(2);
    return train::RunPlan(config.training_step(2), {}, {});
  };
  const auto makespan = [](const train::RunPlan& plan) { return plan.json()["schedule"]["makespan"].get<double>(); };
  const train::RunPlan plain = planned([](train::TrainerConfig& config) {
    config.training.recompute_granularity.clear();
    config.training.recompute_method.clear();
  });
  const train::RunPlan half = planned([](train::TrainerConfig& config) { config.training.recompute_num_layers = 1; });
  const train::RunPlan whole = planned([](train::TrainerConfig& config) { config.training.recompute_num_layers = 2; });
  const train::RunPlan ahead = planned([](train::TrainerConfig& config) {
    config.training.recompute_num_layers = 2;
    config.training.recompute_in_advance = true;
  });
  EXPECT_DOUBLE_EQ(makespan(plain), 51);  // 8 x 2 x 3 units, and (p - 1) (F + B) / v
  EXPECT_DOUBLE_EQ(makespan(half), 51 * 3.5 / 3);
  EXPECT_DOUBLE_EQ(makespan(whole), 51 * 4.0 / 3);
  EXPECT_LT(makespan(ahead), makespan(whole));
  EXPECT_NE(ahead.text().find("Rm runs dropped layers again"), std::string::npos);
  EXPECT_EQ(whole.text().find("Rm runs"), std::string::npos);
}

// The plan has the receive buffers of messages. Replicas that share memory need none for gradients and weights, and
// compute the same bits, buckets on their way beside the backward included.
TEST(Plan, ReplicasThatShareMemoryTakeNoReceiveBuffers) {
  const auto run = [](bool shares, bool zero, bool overlaps) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, zero});
    config.training.train_iters = 3;
    config.model.hidden_size = 64;  // units of 64 KiB and more
    config.model.kv_channels = 64 / config.model.num_attention_heads;
    config.model.ffn_hidden_size = 256;
    config.parallel.shared_memory = shares;
    config.parallel.overlap_grad_reduce = overlaps;
    config.parallel.overlap_param_gather = overlaps && zero;
    if (overlaps) config.parallel.ddp_num_buckets = 3;
    return test::run_on_threads(config, 2);
  };
  for (const bool zero : {false, true}) {
    for (const bool overlaps : {false, true}) {
      SCOPED_TRACE(core::cat(zero ? "ZeRO-1" : "ZeRO-0", overlaps ? ", buckets" : ""));
      const train::RunSummary shared = run(true, zero, overlaps), sent = run(false, zero, overlaps);
      ASSERT_EQ(shared.steps.size(), sent.steps.size());
      for (size_t i = 0; i < sent.steps.size(); ++i) {
        EXPECT_EQ(shared.steps[i].loss, sent.steps[i].loss);
        EXPECT_EQ(shared.steps[i].grad_norm, sent.steps[i].grad_norm);
      }
      const auto comm_peak = [](const train::RunSummary& summary) {
        return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kComm)];
      };
      EXPECT_LT(comm_peak(shared), 8 << 10);  // of the few numbers that ranks agree on
      EXPECT_GT(comm_peak(sent), 16 << 10);
    }
  }
}

train::RunPlan plan_of(const TinyLayout& layout) {
  return plan_of(layout, [](train::TrainerConfig&) {});
}

TEST(Plan, ListsTheGroupsThatCommunicationNames) {
  for (const TinyLayout& layout :
       {TinyLayout{1, 1, 1, false, false, 1, "", "", 2, "p2p"}, TinyLayout{2, 1, 1, false, false, 1},
        TinyLayout{2, 2, 1, true, true, 1}, TinyLayout{1, 1, 1, false, false, 1, "", "", 4, "a2a"}}) {
    const nlohmann::json json = plan_of(layout).json();
    for (const nlohmann::json& stage : json["stages"]) {
      for (const nlohmann::json& of : stage["communication"])
        EXPECT_TRUE(json["groups"].contains(of["group"].get<std::string>())) << layout.name() << " " << of["group"];
    }
    EXPECT_FALSE(json["groups"].contains("dp")) << "no messages have that name";
  }
}

TEST(Plan, SubStepsSayWhetherTheySend) {
  const auto senders = [](const TinyLayout& layout) {
    std::string names;
    const nlohmann::json json = plan_of(layout).json();
    for (const nlohmann::json& of : json["layers"][0]["sub_steps"])
      if (of["communicates"]) names += of["name"].get<std::string>() + " ";
    return names;
  };
  EXPECT_EQ(senders({1, 1, 1, false, false, 1}), "");
  EXPECT_EQ(senders({1, 1, 1, false, false, 1, "", "", 2, "p2p"}), "attention ");
  EXPECT_EQ(senders({2, 1, 1, false, false, 1}), "attention_reduce mlp_reduce ");
  EXPECT_EQ(senders({2, 1, 1, false, true, 1}), "attention attention_reduce mlp mlp_reduce ");
}

TEST(Plan, ShowsTheBlocksThatARingKeeps) {
  constexpr const char* kReceived = "that a ring has received";
  const auto keeping = [](const char* policy, int64_t interval) {
    return plan_of({1, 1, 1, false, false, 1, "", "", 4, "p2p"}, [&](train::TrainerConfig& config) {
      config.parallel.context_parallel_kv_cache_policy = policy;
      config.parallel.context_parallel_cache_interval = interval;
    });
  };
  const train::RunPlan none = keeping("", 0), half = keeping("half", 0), full = keeping("full", 3);
  EXPECT_EQ(none.json()["kv_cache"].size(), 0u);
  EXPECT_EQ(none.text().find(kReceived), std::string::npos);
  EXPECT_NE(half.text().find(core::cat("k include 3 blocks ", kReceived)), std::string::npos) << half.text();
  EXPECT_NE(full.text().find(core::cat("k and v include 3 blocks ", kReceived)), std::string::npos) << full.text();
  EXPECT_EQ(half.json()["kv_cache"][0]["layers"][0]["count"], 8);
  EXPECT_EQ(full.json()["kv_cache"][0]["layers"].size(), 2u) << "0 and 4";
  const auto bytes = [](const train::RunPlan& plan) {
    return plan.json()["kv_cache"][0]["bytes_per_layer"].get<int64_t>();
  };
  EXPECT_EQ(bytes(full), 2 * bytes(half));
  EXPECT_EQ(half.stages()[0].memory.act - none.stages()[0].memory.act, 8 * bytes(half)) << "one micro-batch at a time";
}

TEST(Plan, SaysHowLayersOfSeveralTypesAttend) {
  const train::RunPlan plan =
      plan_of({1, 1, 1, false, false, 1, "", "", 4, "p2p,a2a,p2p,a2a+p2p full"}, [](train::TrainerConfig&) {});
  EXPECT_NE(plan.text().find("CP 4 by a ring (layers 0, 2, 4, 6), exchange of heads (layers 1, 5), exchange of heads "
                             "and a ring (layers 3, 7)"),
            std::string::npos)
      << plan.text();
  EXPECT_EQ(plan.json()["layers"][5]["context_parallel"], "exchange of heads");
  EXPECT_NE(plan.text().find("3 blocks that a ring has received"), std::string::npos) << plan.text();
  EXPECT_NE(plan.text().find("1 blocks that a ring has received"), std::string::npos) << plan.text();
  ASSERT_EQ(plan.json()["kv_cache"].size(), 2U);
  EXPECT_EQ(plan.json()["kv_cache"][1]["layers"][0]["first"], 3);
  // Layers that exchange heads keep what attention makes of all positions, too.
  EXPECT_EQ(plan.json()["saved_tensors"].size(), 2U) << plan.json()["saved_tensors"].dump();
}

TEST(Plan, OfAnAdaptiveAlgorithmSaysWhoseItIs) {
  const std::string ring = plan_of({1, 1, 1, false, false, 1, "", "", 4, "p2p"}).text();
  const std::string adaptive = plan_of({1, 1, 1, false, false, 1, "", "", 4, "adaptive"}).text();
  for (const char* part :
       {"GFLOP of the first that shares", "communication of the first rank that shares a sequence"}) {
    EXPECT_EQ(ring.find(part), std::string::npos);
    EXPECT_NE(adaptive.find(part), std::string::npos) << adaptive;
  }
}

}  // namespace
}  // namespace ms
