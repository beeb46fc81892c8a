// Runs whose experts move between ranks against runs whose experts stay, before and after a stop.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "core/layout/expert_packing.h"
#include "tests/support/planned_run.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

struct Row {
  TinyLayout layout;
  int ep, etp;
  const char* dispatcher = "alltoall";
  int instances = 1;
  std::string name() const {
    return core::cat(layout.name(), "_ep", ep, "_etp", etp, "_", dispatcher, instances > 1 ? "_instances" : "");
  }
};

train::TrainerConfig config_of(const test::TemporaryFolder& folder, const Row& row) {
  train::TrainerConfig config = test::tiny_config(folder.path(), row.layout);
  config.parallel.expert_model_parallel_size = row.ep;
  config.parallel.expert_tensor_parallel_size = row.etp;
  config.parallel.moe_token_dispatcher_type = row.dispatcher;
  config.parallel.num_distributed_optimizer_instances = row.instances;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_layer_freq = "([1,0,1,1])";
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.moe_aux_loss_coeff = {0.02};
  config.training.train_iters = 6;
  config.training.global_batch_size = 8;
  return config;
}

void place(train::TrainerConfig& config, int64_t every = 2) {
  config.training.enable_expert_placement = true;
  config.training.expert_placement_freq = every;
}

struct Outcome {
  train::RunSummary summary;
  std::map<TensorRole, std::map<std::string, std::vector<float>>> tensors;
  nlohmann::json placement;  // null: none is saved
};

Outcome run(train::TrainerConfig config, const test::TemporaryFolder& folder, const Row& row, const std::string& name) {
  config.checkpoint.save = folder / name;
  Outcome outcome{test::run_on_threads(config, row.layout.ranks()), {}, {}};
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq})
    outcome.tensors[role] = test::read_tensors(outcome.summary.checkpoint, role);
  const auto source = ckpt::open_native(outcome.summary.checkpoint);
  outcome.placement = source->info().common.value("expert_placement", nlohmann::json());
  return outcome;
}

// Experts that are not on the rank on which they began.
int num_away(const Outcome& outcome) {
  int away = 0;
  for (const nlohmann::json& layer : outcome.placement.at("slots")) {
    const auto slots = layer.get<std::vector<int32_t>>();
    EXPECT_TRUE(layout::is_permutation(slots));
    const auto each = static_cast<int32_t>(slots.size()) / outcome.placement.at("ranks").get<int32_t>();
    for (size_t expert = 0; expert < slots.size(); ++expert)
      away += slots[expert] / each != static_cast<int32_t>(expert) / each ? 1 : 0;
  }
  return away;
}

// tolerance: 0 requires the same bits.
void expect_same(const Outcome& seen, const Outcome& want, double tolerance = 0) {
  ASSERT_EQ(seen.summary.steps.size(), want.summary.steps.size());
  for (size_t i = 0; i < want.summary.steps.size(); ++i) {
    const auto &a = seen.summary.steps[i], &b = want.summary.steps[i];
    EXPECT_NEAR(a.loss, b.loss, tolerance * b.loss) << "step " << i + 1;
    // With ZeRO replicas have other parts of an expert that has moved, whose squares are added up.
    EXPECT_NEAR(a.grad_norm, b.grad_norm, (100 * tolerance + 1e-14) * b.grad_norm) << "step " << i + 1;
    if (tolerance > 0) continue;
    for (const auto& [layer, load] : b.experts) EXPECT_EQ(a.experts.at(layer).tokens, load.tokens) << "layer " << layer;
  }
  for (const auto& [role, tensors] : want.tensors) {
    const double distance = test::largest_distance(seen.tensors.at(role), tensors);
    EXPECT_LE(distance, 10 * tolerance) << core::role_name(role);
  }
}

struct Change {
  const char* name;
  void (*set)(train::TrainerConfig&);
};
const Change kPlain{"", [](train::TrainerConfig&) {}};

void expect_moves_change_nothing(const Row& row, const Change& change = kPlain) {
  SCOPED_TRACE(core::cat(row.name(), " ", change.name));
  const test::TemporaryFolder folder;
  train::TrainerConfig config = config_of(folder, row);
  change.set(config);
  const Outcome stay = run(config, folder, row, "stay");
  EXPECT_TRUE(stay.placement.is_null());
  place(config);
  const Outcome moved = run(config, folder, row, "moved");
  EXPECT_GT(num_away(moved), 0);
  // Sums over the ranks of all experts have another order where each rank has tokens of several of them.
  expect_same(moved, stay, std::string_view(row.dispatcher) == "allgather" ? 1e-5 : 0);
}

// Rows of an expert, and the sums of its gradients over replicas, have the same order wherever it is.
TEST(ExpertPlacement, ExpertsThatMoveLearnAsThoseThatStay) {
  const Row rows[] = {{{1, 1, 2}, 2, 1},
                      {{1, 1, 2}, 2, 1, "allgather"},
                      {{1, 1, 4}, 4, 1},
                      {{1, 1, 4, 1}, 2, 1},
                      {{1, 1, 4, 1}, 2, 1, "allgather"},
                      {{1, 1, 8, 1}, 4, 1},
                      {{1, 1, 4, 2}, 2, 1},
                      {{1, 1, 4, 3}, 2, 1},
                      {{1, 1, 8, 1}, 2, 1, "alltoall", 2},
                      {{2, 1, 1, 1, true}, 2, 1},
                      {{2, 1, 2, 1, true}, 2, 1},
                      {{2, 1, 2, 1, true}, 2, 2},
                      {{2, 1, 2, 1, true}, 4, 1},
                      {{1, 2, 4, 1}, 2, 1},
                      {{1, 2, 2, 0, false, 2}, 2, 1},
                      {{1, 1, 2, 1, false, 1, "", "", 2, "a2a"}, 2, 1}};
  for (const Row& row : rows) expect_moves_change_nothing(row);
}

TEST(ExpertPlacement, WithAllThatKeepsOrDropsState) {
  const Change changes[] = {
      {"bf16", [](train::TrainerConfig& c) { c.training.bf16 = true; }},
      {"shared master weights", [](train::TrainerConfig& c) { c.training.bf16 = c.optimizer.reuse_fp32_param = true; }},
      {"state on a disk", [](train::TrainerConfig& c) { c.optimizer.swap_optimizer = true; }},
      {"overlapped buckets",
       [](train::TrainerConfig& c) { c.parallel.overlap_grad_reduce = c.parallel.overlap_param_gather = true; }},
      {"a capacity", [](train::TrainerConfig& c) { c.training.moe_expert_capacity_factor = 1.2; }},
      {"recomputed blocks", [](train::TrainerConfig& c) { c.training.moe_layer_recompute = true; }},
      {"overlapped exchanges",
       [](train::TrainerConfig& c) { c.parallel.moe_alltoall_overlap_comm = c.parallel.moe_fb_overlap = true; }},
      {"multi-token prediction", [](train::TrainerConfig& c) { c.model.mtp_num_layers = 1; }},
      {"packed weights", [](train::TrainerConfig& c) { c.training.packed_weights = c.training.deterministic = true; }},
      {"a bias of the choice",
       [](train::TrainerConfig& c) {
         c.model.moe_router_score_function = "sigmoid";
         c.model.moe_router_enable_expert_bias = true;
       }},
      {"frozen experts", [](train::TrainerConfig& c) { c.optimizer.freeze_parameters = "local_experts.*fc1"; }}};
  for (const Change& change : changes) expect_moves_change_nothing({{1, 1, 4, 1}, 2, 1}, change);
}

// Stopped before a move, at one, and after it: where experts are, and their load, is part of what a run continues
// with.
TEST(ExpertPlacement, AStopChangesNoBitAndNoMove) {
  const std::pair<Row, std::vector<int64_t>> cases[] = {{{{1, 1, 4, 1}, 2, 1}, {2, 3, 5}},
                                                        {{{2, 1, 2, 3, true}, 2, 1}, {4}}};
  for (const auto& [row, stops] : cases) {
    const test::TemporaryFolder folder;
    train::TrainerConfig config = config_of(folder, row);
    place(config, 3);
    config.training.train_iters = 7;
    const Outcome whole = run(config, folder, row, "whole");
    EXPECT_GT(num_away(whole), 0);
    for (const int64_t stop : stops) {
      SCOPED_TRACE(core::cat(row.name(), ", stopped at ", stop));
      const std::string parts = core::cat("parts", stop);
      train::TrainerConfig part = config;
      part.training.train_iters = stop;
      run(part, folder, row, parts);
      part.training.train_iters = 7;
      part.checkpoint.load = folder / parts;
      const Outcome rest = run(part, folder, row, parts);
      EXPECT_EQ(rest.placement, whole.placement);
      for (const auto& [role, tensors] : whole.tensors)
        EXPECT_EQ(test::largest_distance(rest.tensors.at(role), tensors), 0) << core::role_name(role);
    }
  }
}

// A checkpoint has each expert under its own name wherever it was: other numbers of ranks, and runs whose experts stay,
// continue it.
TEST(ExpertPlacement, ItsCheckpointsContinueOnAnyLayout) {
  const test::TemporaryFolder folder;
  const Row first{{1, 1, 4, 1}, 2, 1}, others[] = {{{1, 1, 1}, 1, 1}, {{1, 1, 4, 1}, 4, 1}, first};
  train::TrainerConfig config = config_of(folder, first);
  const Outcome whole = run(config, folder, first, "whole");
  place(config);
  config.training.train_iters = 3;
  EXPECT_GT(num_away(run(config, folder, first, "first")), 0);
  for (const Row& row : others) {
    SCOPED_TRACE(row.name());
    train::TrainerConfig rest = config_of(folder, row);
    if (row.ep == 4) place(rest);
    rest.checkpoint.load = folder / "first";
    const Outcome second = run(rest, folder, row, "second_" + row.name());
    ASSERT_EQ(second.summary.steps.size(), 3U);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(second.summary.steps[i].loss, whole.summary.steps[3 + i].loss,
                  1e-5 * whole.summary.steps[3 + i].loss);
    EXPECT_LT(test::largest_distance(second.tensors.at(TensorRole::kParam), whole.tensors.at(TensorRole::kParam)),
              1e-4);
  }
}

// A threshold that no layer reaches, and one that each does which a packing evens at all.
TEST(ExpertPlacement, FineGrainedMovesWhatIsWorthIt) {
  const test::TemporaryFolder folder;
  const Row row{{1, 1, 2}, 2, 1};
  train::TrainerConfig config = config_of(folder, row);
  place(config);
  config.training.enable_fine_grained_expert_placement = true;
  config.training.fine_grained_expert_placement_thre = 1.5;  // of two ranks it is 2^0.5 at most
  EXPECT_EQ(num_away(run(config, folder, row, "none")), 0);
  config.training.fine_grained_expert_placement_thre = 1e-9;
  EXPECT_GT(num_away(run(config, folder, row, "all")), 0);
}

// What the dispatcher reads of where experts are takes memory.
TEST(ExpertPlacement, ThePlanIsThatOfTheRun) {
  const test::TemporaryFolder folder;
  for (const Row& row : {Row{{1, 1, 4, 1}, 2, 1}, Row{{2, 1, 2, 1, true}, 2, 1, "allgather"}}) {
    train::TrainerConfig config = config_of(folder, row);
    config.training.fix_router = true;
    place(config);
    test::expect_plan_equals_run(config, row.layout.ranks());
  }
}

class OtherCommon final : public ckpt::Source {
 public:
  OtherCommon(std::unique_ptr<ckpt::Source> source, const nlohmann::json& placement)
      : source_(std::move(source)), info_(source_->info()) {
    info_.common["expert_placement"] = placement;
  }
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return source_->shards(); }
  std::string describe(int32_t shard) const override { return source_->describe(shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(shard, offset, extent, out);
  }

 private:
  std::unique_ptr<ckpt::Source> source_;
  ckpt::CheckpointInfo info_;
};

TEST(ExpertPlacement, RefusesAPlacementThatIsNone) {
  const test::TemporaryFolder folder;
  const Row row{{1, 1, 2}, 2, 1};
  train::TrainerConfig config = config_of(folder, row);
  place(config);
  config.training.train_iters = 1;
  const nlohmann::json good = run(config, folder, row, "saved").placement;
  nlohmann::json twice = good, few = good, none = good, text = good;
  twice["slots"]["2"] = {0, 1, 2, 3, 4, 5, 6, 6};
  few["slots"]["0"] = {0, 1};
  none["load"].erase("3");
  text["load"]["3"][0] = "much";
  config.training.train_iters = 2;
  config.checkpoint.load = folder / "saved";
  const std::pair<nlohmann::json, const char*> cases[] = {{twice, "two experts of layer 2 in one slot"},
                                                          {few, "other slots of layer 0"},
                                                          {none, "no load of layer 3"},
                                                          {text, "other load of layer 3"},
                                                          {7, "is no object"}};
  for (const auto& [placement, words] : cases) {
    const test::Thrown thrown = test::thrown_by([&, &json = placement] {
      test::run_on_threads(config, 2, [&](const auto& path, int64_t) {
        return std::make_unique<OtherCommon>(ckpt::open_native(path), json);
      });
    });
    EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData) << thrown.text;
    EXPECT_NE(thrown.text.find(words), std::string::npos) << thrown.text;
  }
}

}  // namespace
}  // namespace ms
