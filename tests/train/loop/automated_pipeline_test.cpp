// Runs that choose their own layers compute what the same flags, given by hand, compute.
#include "train/loop/automated_pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

#include "ckpt/reader.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/layout/formulas/memory.h"
#include "core/layout/slot_policy.h"
#include "core/log.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/loop/part_times.h"

namespace ms::train {
namespace {

using List = std::vector<int64_t>;
using test::TinyLayout;

constexpr int kSteps = 6;

TrainerConfig config_of(const test::TemporaryFolder& folder, const TinyLayout& layout) {
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 5;  // no multiple of the stages
  config.training.global_batch_size = 8;
  config.training.train_iters = kSteps;
  config.checkpoint.save = folder / "checkpoints";
  return config;
}

nlohmann::json common_of(const std::filesystem::path& checkpoint) {
  return ckpt::open_native(checkpoint)->info().common;
}

// Runs, and returns what it has logged.
std::string log_of(const std::function<void()>& run) {
  core::set_log_level(core::LogLevel::kInfo);
  testing::internal::CaptureStderr();
  run();
  return testing::internal::GetCapturedStderr();
}

// The flags that a run has stored in its checkpoint, on an empty configuration of the same run.
void take_choice(const nlohmann::json& stored, TrainerConfig& config) {
  EXPECT_FALSE(stored["parallel"].value("automated_pipeline", false));
  EXPECT_FALSE(stored["parallel"].value("automated_pipeline_perf", false));
  config.parallel.num_layer_list = stored["parallel"]["num_layer_list"].get<List>();
  config.training.recompute_module_list = stored["training"].value("recompute_module_list", List());
  config.training.recompute_type = stored["training"].value("recompute_type", int64_t{2});
  config.training.micro_batch_size = stored["training"].value("micro_batch_size", int64_t{1});
}

void expect_equal_runs(const RunSummary& seen, const RunSummary& expected) {
  ASSERT_EQ(seen.steps.size(), expected.steps.size());
  for (size_t i = 0; i < seen.steps.size(); ++i) {
    EXPECT_EQ(seen.steps[i].loss, expected.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(seen.steps[i].grad_norm, expected.steps[i].grad_norm) << "step " << i + 1;
  }
  EXPECT_EQ(test::read_tensors(seen.checkpoint, core::TensorRole::kParam),
            test::read_tensors(expected.checkpoint, core::TensorRole::kParam));
}

struct Row {
  const char* name;
  TinyLayout layout;
  void (*set)(TrainerConfig&);
};

class AutomatedPipeline : public testing::TestWithParam<Row> {};

TEST_P(AutomatedPipeline, TrainsAsTheFlagsThatItStores) {
  const Row& row = GetParam();
  const test::TemporaryFolder folder, by_hand;
  TrainerConfig config = config_of(folder, row.layout);
  row.set(config);
  RunSummary chosen;
  const std::string log = log_of([&] { chosen = test::run_on_threads(config, row.layout.ranks()); });
  const nlohmann::json stored = common_of(chosen.checkpoint)["config"];
  TrainerConfig given = config_of(by_hand, row.layout);
  row.set(given);
  given.parallel.automated_pipeline = given.parallel.automated_pipeline_perf = false;
  given.parallel.save_memory_ratio.reset();
  take_choice(stored, given);
  const List& list = given.parallel.num_layer_list;
  EXPECT_EQ(std::accumulate(list.begin(), list.end(), int64_t{0}), 5);
  std::string flag = "automated pipeline: --num-layer-list ";
  for (size_t i = 0; i < list.size(); ++i) flag += core::cat(i > 0 ? "," : "", list[i]);
  EXPECT_NE(log.find(flag + " "), std::string::npos) << flag << " in " << log;
  EXPECT_NE(log.find("predicted step (ms): "), std::string::npos) << log;
  expect_equal_runs(chosen, test::run_on_threads(given, row.layout.ranks()));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AutomatedPipeline,
    testing::Values(
        Row{"pp2", {1, 2, 1}, [](TrainerConfig& c) { c.parallel.automated_pipeline = true; }},
        Row{"pp4_tied",
            {1, 4, 1},
            [](TrainerConfig& c) {
              c.parallel.automated_pipeline = true;
              c.model.untie_embeddings_and_output_weights = false;
            }},
        Row{"tp2_pp2_dp2_zero_sp",
            {2, 2, 2, true, true},
            [](TrainerConfig& c) { c.parallel.automated_pipeline = true; }},
        Row{"pp2_bf16_packed",
            {1, 2, 1},
            [](TrainerConfig& c) {
              c.parallel.automated_pipeline = true;
              c.training.bf16 = c.training.packed_weights = c.optimizer.reuse_fp32_param = true;
            }},
        Row{"pp2_memory",
            {1, 2, 1},
            [](TrainerConfig& c) {
              c.parallel.automated_pipeline = true;
              c.parallel.save_memory_ratio = 0.1;
            }},
        Row{"pp2_dp2_perf", {1, 2, 2}, [](TrainerConfig& c) { c.parallel.automated_pipeline_perf = true; }}),
    [](const auto& test) { return test.param.name; });

TEST(AutomatedPipelineMemory, SavesTheShareThatItIsToldTo) {
  const test::TemporaryFolder folder;
  const TinyLayout layout{1, 2, 1};
  TrainerConfig config = config_of(folder, layout);
  config.training.seq_length = 64;  // activations are the larger part
  config.parallel.automated_pipeline = true;
  config.parallel.save_memory_ratio = 0.3;
  const RunSummary chosen = test::run_on_threads(config, 2);
  TrainerConfig given = config_of(folder, layout);
  given.training.seq_length = 64;
  const auto largest = [](TrainerConfig of) {
    of.model.vocab_size = 257;
    of.resolve_and_validate(2);
    int64_t peak = 0;
    for (const int rank : {0, 1}) peak = std::max(peak, layout::step_memory(of.training_step(2), rank).in_memory());
    return static_cast<double>(peak);
  };
  TrainerConfig even = given;
  even.parallel.num_layer_list = {3, 2};
  take_choice(common_of(chosen.checkpoint)["config"], given);
  EXPECT_FALSE(given.training.recompute_module_list.empty());
  EXPECT_LE(largest(given), 0.7 * largest(even));
}

TEST(AutomatedPipelineResume, TakesTheLayersOfTheCheckpoint) {
  const test::TemporaryFolder folder, unbroken_folder;
  const TinyLayout layout{1, 2, 1};
  TrainerConfig config = config_of(folder, layout);
  config.parallel.automated_pipeline = true;
  config.checkpoint.load = config.checkpoint.save;
  config.training.exit_interval = kSteps / 2;
  RunSummary first, second;
  EXPECT_NE(log_of([&] { first = test::run_on_threads(config, 2); }).find("measured in"), std::string::npos);
  const nlohmann::json before = common_of(first.checkpoint);
  const std::string log = log_of([&] { second = test::run_on_threads(config, 2); });
  EXPECT_NE(log.find("as the checkpoint's run chose"), std::string::npos) << log;
  EXPECT_EQ(log.find("measured in"), std::string::npos) << log;
  const nlohmann::json after = common_of(second.checkpoint);
  EXPECT_EQ(after["automated_pipeline"], before["automated_pipeline"]);
  EXPECT_EQ(after["config"]["parallel"]["num_layer_list"], before["config"]["parallel"]["num_layer_list"]);
  TrainerConfig unbroken = config_of(unbroken_folder, layout);
  take_choice(before["config"], unbroken);
  RunSummary seen = first;
  seen.steps.insert(seen.steps.end(), second.steps.begin(), second.steps.end());
  seen.checkpoint = second.checkpoint;
  expect_equal_runs(seen, test::run_on_threads(unbroken, 2));
}

// Calls body(config, groups) on each of the ranks.
void on_ranks(const TrainerConfig& given, int ranks, const std::function<void(TrainerConfig&, ProcessGroups&)>& body) {
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    TrainerConfig config = given;
    config.model.vocab_size = 257;
    config.resolve_and_validate(ranks);
    ProcessGroups groups(endpoint, config.grid(ranks));
    body(config, groups);
  });
}

// What a checkpoint says is taken only if it is of such a run, and makes sense; all ranks do as rank 0.
TEST(AutomatedPipelineResume, MeasuresAnewForAnotherRunOrADamagedRecord) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder, {1, 2, 1});
  config.parallel.automated_pipeline = true;
  nlohmann::json record;
  on_ranks(config, 2, [&](TrainerConfig& own, ProcessGroups& groups) {
    core::ThreadPool pool(1);
    nlohmann::json chosen = choose_pipeline(own, groups, pool, nullptr);
    EXPECT_FALSE(chooses_pipeline(own));
    if (groups.world.rank() == 0) record = chosen;
  });
  const List unlikely = {0, 5};
  record["num_layer_list"] = unlikely;
  const auto list_with = [&](const std::function<void(nlohmann::json&, TrainerConfig&)>& change, bool only_rank_0) {
    List list;
    nlohmann::json changed = record;
    TrainerConfig given = config;
    change(changed, given);
    on_ranks(given, 2, [&](TrainerConfig& own, ProcessGroups& groups) {
      core::ThreadPool pool(1 + groups.world.rank());
      const bool has = groups.world.rank() == 0 || !only_rank_0;
      choose_pipeline(own, groups, pool, has ? changed : nlohmann::json());
      if (groups.world.rank() == 1) list = own.parallel.num_layer_list;
    });
    return list;
  };
  EXPECT_EQ(list_with([](auto&, auto&) {}, false), unlikely);
  EXPECT_EQ(list_with([](auto&, auto&) {}, true), unlikely);
  EXPECT_NE(list_with([](auto&, TrainerConfig& c) { c.training.seq_length = 8; }, false), unlikely);
  EXPECT_NE(list_with([](auto&, TrainerConfig& c) { c.training.micro_batch_size = 2; }, false), unlikely);
  EXPECT_NE(list_with([](auto& r, auto&) { r["num_layer_list"] = {0, 4}; }, false), (List{0, 4}));
  EXPECT_NE(list_with([](auto& r, auto&) { r["num_layer_list"] = {-1, 6}; }, false), (List{-1, 6}));
  EXPECT_NE(list_with([](auto& r, auto&) { r["num_layer_list"] = "0,5"; }, false), unlikely);
  EXPECT_NE(list_with([](auto& r, auto&) { r.erase("recompute_type"); }, false), unlikely);
  EXPECT_NE(list_with([](auto& r, auto&) { r["micro_batch_size"] = 0; }, false), unlikely);
  EXPECT_NE(list_with([](auto& r, auto&) { r = 7; }, false), unlikely);
}

TEST(MeasureParts, KnowsKindsOfLayersAndGivesAllRanksTheSame) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder, {1, 2, 1});
  config.training.seq_length = 512;
  config.parallel.automated_pipeline = true;
  config.model.max_position_embeddings = 512;
  config.model.sliding_window = 8;
  config.model.window_attn_skip_freq = "[1,1,0,1,1]";
  std::vector<std::vector<layout::ModelTimes>> times(2);
  on_ranks(config, 2, [&](TrainerConfig& own, ProcessGroups& groups) {
    core::ThreadPool pool(1);
    const List sizes = {1, 4};
    times[static_cast<size_t>(groups.world.rank())] = measure_parts(own, groups, pool, sizes);
  });
  ASSERT_EQ(times[0].size(), 2u);
  for (size_t size = 0; size < 2; ++size) {
    const layout::ModelTimes &first = times[0][size], &second = times[1][size];
    ASSERT_EQ(first.layers.size(), 5u);
    for (size_t layer = 0; layer < 5; ++layer) {
      const layout::LayerTimes& own = first.layers[layer];
      EXPECT_EQ(own.forward, second.layers[layer].forward);
      EXPECT_EQ(own.backward, second.layers[layer].backward);
      EXPECT_EQ(own.recompute_layer, second.layers[layer].recompute_layer);
      EXPECT_EQ(own.forward == first.layers[0].forward, layer != 2) << "of one kind";
    }
    EXPECT_EQ(first.embedding.forward, second.embedding.forward);
    EXPECT_EQ(first.loss.backward, second.loss.backward);
    EXPECT_GT(first.embedding.forward, 0);
    EXPECT_GT(first.update_per_element, 0);
    EXPECT_EQ(first.update_per_element, second.update_per_element);
  }
}

// A disk on which each request takes a while.
class SlowDisk final : public core::FileOps {
 public:
  SlowDisk() { core::set_file_ops_for_test(this); }
  ~SlowDisk() override { core::set_file_ops_for_test(nullptr); }
  ssize_t pwrite(int fd, const void* data, size_t size_bytes, int64_t offset) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return core::FileOps::pwrite(fd, data, size_bytes, offset);
  }
};

TEST(MeasureParts, ALayerTakesNoLessThanTheTierForWhatItMoves) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder, {1, 2, 1});
  config.training.seq_length = config.model.max_position_embeddings = 512;
  config.training.swap_attention = true;
  config.training.swap_min_tensor_kib = 0;
  config.training.swap_dir = folder.path().string();
  config.parallel.automated_pipeline = true;
  layout::ModelTimes times;
  const SlowDisk disk;
  const std::string log = log_of([&] {
    on_ranks(config, 2, [&](TrainerConfig& own, ProcessGroups& groups) {
      core::ThreadPool pool(1);
      const List sizes = {1};
      const auto measured = measure_parts(own, groups, pool, sizes);
      if (groups.world.rank() != 0) return;
      times = measured[0];
      // 32 MiB in eight requests, at least.
      const layout::TrainingStep step = own.training_step(2);
      const layout::LayerSlots slots = layout::layer_slots(step.recompute, step.swap, 0);
      const int64_t bytes = layout::swapped_bytes_of_layer(step, slots).of_tier;
      EXPECT_GT(bytes, 0);
      for (const layout::LayerTimes& layer : times.layers)
        EXPECT_GE(layer.forward, static_cast<double>(bytes) * 8 * 0.05 / (32 << 20));
    });
  });
  EXPECT_EQ(times.layers.size(), 5u);
  EXPECT_NE(log.find("GB/s to --swap-dir"), std::string::npos) << log;
}

}  // namespace
}  // namespace ms::train
