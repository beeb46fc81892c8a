// The layers that --automated-pipeline chooses against steps of all other splits, as measured.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "core/layout/pipeline_search.h"
#include "tests/train/loop/pipeline_rank.h"
#include "train/loop/automated_pipeline.h"
#include "train/loop/random_batch.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using layout::ScheduleAction;
using List = std::vector<int64_t>;

std::vector<List> all_splits(int stages, int64_t layers) {
  std::vector<List> splits;
  List list(static_cast<size_t>(stages), 0);
  const std::function<void(size_t, int64_t)> extend = [&](size_t stage, int64_t left) {
    if (stage + 1 == list.size()) {
      list[stage] = left;
      splits.push_back(list);
      return;
    }
    for (list[stage] = 0; list[stage] <= left; ++list[stage]) extend(stage + 1, left - list[stage]);
  };
  extend(0, layers);
  return splits;
}

// Of each split the fastest of several steps, because other programs take cores, too: those that are far from the best
// at first are not measured again.
std::map<List, double> fastest_steps(const std::vector<List>& splits, const std::function<double(const List&)>& step) {
  std::map<List, double> seconds;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 3; ++round) {
    for (const List& list : splits) {
      double& of_list = seconds.try_emplace(list, std::numeric_limits<double>::infinity()).first->second;
      if (round > 0 && of_list > 1.2 * best) continue;
      of_list = std::min(of_list, step(list));
      best = std::min(best, of_list);
    }
  }
  return seconds;
}

// Prints the best splits, and expects the chosen one within 5 % of the best.
void expect_near_best(const char* model, const std::map<List, double>& seconds, const List& chosen) {
  const auto best = std::ranges::min_element(seconds, {}, [](const auto& entry) { return entry.second; });
  const auto slowest = std::ranges::max_element(seconds, {}, [](const auto& entry) { return entry.second; });
  std::printf("%s: chosen %s %.4f s, best of %zu %s %.4f s, slowest %.4f s\n", model, core::cat(chosen).c_str(),
              seconds.at(chosen), seconds.size(), core::cat(best->first).c_str(), best->second, slowest->second);
  EXPECT_LE(seconds.at(chosen), 1.05 * best->second);
}

// Stages that sleep as long as their parts take, so that cores are no limit.
class Sleeper : public ActionObserver {
 public:
  explicit Sleeper(layout::PartTimes times) : times_(times) {}
  void begins(std::span<const ScheduleAction> actions) override {
    const double seconds = actions[0].kind == ScheduleAction::kForward ? times_.forward : times_.backward;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  void ends(std::span<const ScheduleAction>) override {}

 private:
  layout::PartTimes times_;
};

layout::PartTimes times_of_stage(const layout::ModelTimes& times, const List& list, int stage) {
  layout::PartTimes sum;
  const auto add = [&](const layout::PartTimes& part) { sum.forward += part.forward, sum.backward += part.backward; };
  if (stage == 0) add(times.embedding);
  size_t first = 0;
  for (int before = 0; before < stage; ++before) first += static_cast<size_t>(list[static_cast<size_t>(before)]);
  for (size_t i = 0; i < static_cast<size_t>(list[static_cast<size_t>(stage)]); ++i) add(times.layers[first + i]);
  if (stage + 1 == static_cast<int>(list.size())) add(times.loss);
  return sum;
}

constexpr int kStages = 4;
constexpr int64_t kLayers = 5, kMicrobatches = 8;

TrainerConfig sleeping_config(const test::TemporaryFolder& folder) {
  TrainerConfig config = test::tiny_config(folder.path(), {1, kStages, 1});
  config.model.num_layers = kLayers;
  config.training.global_batch_size = kMicrobatches;
  return config;
}

double sleeping_step(TrainerConfig config, const layout::ModelTimes& times, const List& list) {
  config.parallel.num_layer_list = list;
  std::vector<double> seconds(kStages);
  test::run_thread_ranks(kStages, [&](core::Endpoint& endpoint) {
    PipelineRank rank(endpoint, config, kMicrobatches);
    rank.step();  // the first one allocates
    Sleeper sleeper(times_of_stage(times, list, endpoint.rank()));
    rank.runner.set_observer(&sleeper);
    rank.groups->world.barrier();
    const int64_t start_ns = core::trace::now_ns();
    rank.step();
    seconds[static_cast<size_t>(endpoint.rank())] = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
  });
  return *std::ranges::max_element(seconds);
}

class SleepingStages : public testing::TestWithParam<std::pair<const char*, layout::ModelTimes>> {};

TEST_P(SleepingStages, TheSearchIsNearTheBestOfAllSplits) {
  const auto& [model, times] = GetParam();
  const test::TemporaryFolder folder;
  TrainerConfig config = sleeping_config(folder);
  TrainerConfig resolved = config;
  resolved.parallel.automated_pipeline = true;
  resolved.model.vocab_size = 257;
  resolved.training.train_iters = 1;
  resolved.resolve_and_validate(kStages);
  const List chosen =
      layout::find_pipeline_split(resolved.training_step(kStages), times, std::numeric_limits<int64_t>::max())
          .split.num_layer_list;
  std::vector<List> splits = all_splits(kStages, kLayers);
  std::erase_if(splits, [](const List& list) { return std::ranges::max(list) > 3; });  // far from the best
  const std::map<List, double> seconds =
      fastest_steps(splits, [&](const List& list) { return sleeping_step(config, times, list); });
  expect_near_best(model, seconds, chosen);
}

layout::ModelTimes sleeping_times(layout::PartTimes loss, layout::PartTimes of_layer_3) {
  layout::ModelTimes times{.embedding = {0.001, 0.001}, .loss = loss};
  times.layers.assign(kLayers, {{0.006, 0.012}});
  static_cast<layout::PartTimes&>(times.layers[3]) = of_layer_3;
  return times;
}

INSTANTIATE_TEST_SUITE_P(Models, SleepingStages,
                         testing::Values(std::pair("heavy_layer", sleeping_times({0.002, 0.004}, {0.018, 0.036})),
                                         std::pair("large_vocabulary", sleeping_times({0.015, 0.030}, {0.006, 0.012}))),
                         [](const auto& test) { return test.param.first; });

// The time that the thread of a rank computes in each action, whatever else runs on its core.
class ComputeTimes : public ActionObserver {
 public:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  void begins(std::span<const ScheduleAction>) override { begin_ = now(); }
  void ends(std::span<const ScheduleAction> actions) override {
    double& least = actions[0].kind == ScheduleAction::kForward ? least_.forward : least_.backward;
    least = std::min(least, now() - begin_);
  }
  const layout::ActionTimes& least() const { return least_; }  // of all micro-batches and steps

 private:
  double begin_ = 0;
  layout::ActionTimes least_{.forward = 1e9, .backward = 1e9};
};

constexpr int kRealStages = 2;

struct RealRank {
  RealRank(core::Endpoint& endpoint, const TrainerConfig& given)
      : config(given), groups(endpoint, config.grid(kRealStages)) {}

  TrainerConfig config;
  core::Arena arena;
  core::ThreadPool pool{1};
  ops::Context ops{pool, arena};
  ProcessGroups groups;
  RankState state{config, groups, ops};
  ParameterStore parameters{state};
  Optimizer optimizer{state, parameters};
  GptStage stage{state, parameters};
  StepRunner runner{state, stage};
};

// Of real steps with these layers: the makespan of the times that its actions compute, and the slowest update. Waiting
// is computed, not measured, because other programs take cores, too (pipeline_idle_test.cpp compares both).
double real_step(TrainerConfig config, const List& list) {
  config.parallel.automated_pipeline = false;
  config.parallel.num_layer_list = list;
  config.resolve_and_validate(kRealStages);
  const int64_t microbatches = config.num_microbatches(1);
  std::vector<layout::ActionTimes> times(kRealStages);
  std::vector<double> updates(kRealStages, 1e9);
  test::run_thread_ranks(kRealStages, [&](core::Endpoint& endpoint) {
    RealRank rank(endpoint, config);
    rank.parameters.initialize(1, [](const Parameter&, const core::TensorView&) {});
    const std::vector<Microbatch> batch = random_batch(config, 1, microbatches, 0);
    ComputeTimes observer;
    double& update = updates[static_cast<size_t>(endpoint.rank())];
    for (int step = 0; step < 4; ++step) {
      if (step == 1) rank.runner.set_observer(&observer);  // the first step allocates
      rank.runner.train(batch, 1);
      const double norm = rank.optimizer.finish_gradients(1);
      const double start = ComputeTimes::now();
      rank.optimizer.update({.grad_norm = norm});
      rank.parameters.zero_grads();
      update = std::min(update, ComputeTimes::now() - start);
    }
    times[static_cast<size_t>(endpoint.rank())] = observer.least();
  });
  return layout::check_schedule(schedule_of({}, kRealStages, 1, microbatches), times).makespan +
         *std::ranges::max_element(updates);
}

void expect_chosen_is_near_best(const char* model, const std::function<void(TrainerConfig&)>& set) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {1, kRealStages, 1});
  config.model.num_layers = 8;
  config.model.vocab_size = 257;
  config.training.global_batch_size = 8;
  config.training.train_iters = 1;
  config.parallel.automated_pipeline = true;
  set(config);
  config.resolve_and_validate(kRealStages);
  List chosen;
  test::run_thread_ranks(kRealStages, [&](core::Endpoint& endpoint) {
    TrainerConfig own = config;
    ProcessGroups groups(endpoint, own.grid(kRealStages));
    core::ThreadPool pool(1);
    choose_pipeline(own, groups, pool, nullptr);
    if (endpoint.rank() == 0) chosen = own.parallel.num_layer_list;
  });
  std::map<List, double> seconds;
  for (const List& list : all_splits(kRealStages, config.model.num_layers)) seconds[list] = real_step(config, list);
  for (const auto& [list, of_step] : seconds) std::printf("  %s %.4f s\n", core::cat(list).c_str(), of_step);
  expect_near_best(model, seconds, chosen);
}

TEST(AutomatedPipelineSpeed, OneHeavyLayer) {
  expect_chosen_is_near_best("one layer without window", [](TrainerConfig& config) {
    config.training.seq_length = 1024;
    config.model.max_position_embeddings = 1024;
    config.model.sliding_window = 16;
    config.model.window_attn_skip_freq = "[0]+[1]*7";
  });
}

TEST(AutomatedPipelineSpeed, LargeVocabulary) {
  expect_chosen_is_near_best("vocabulary of 4096", [](TrainerConfig& config) {
    config.training.seq_length = 256;
    config.model.max_position_embeddings = 256;
    config.model.hidden_size = 128;
    config.model.ffn_hidden_size = 512;
    config.model.vocab_size = 4096;
  });
}

}  // namespace
}  // namespace ms::train
