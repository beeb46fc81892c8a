// The search against all splits, computed one by one with the checker and the memory formula.
#include "core/layout/pipeline_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "core/layout/formulas/memory.h"
#include "core/layout/schedule_check.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using List = std::vector<int64_t>;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

TrainingStep step_of(int stages, int64_t layers, int64_t microbatches, int64_t vocab_size = 64) {
  TrainingStep step{.model = test::small_model(vocab_size), .seq_length = 16, .num_microbatches = microbatches};
  step.model.num_layers = layers;
  step.layout = {.pipeline_model_parallel_size = stages};
  return step;
}

ModelTimes equal_times(int64_t layers) {
  ModelTimes times{.embedding = {0.1, 0.1}, .loss = {0.5, 1}};
  times.layers.assign(static_cast<size_t>(layers), {{1, 2}, 0.8, 0.3});
  return times;
}

double total(const LayerTimes& layer) { return layer.forward + layer.backward; }

int64_t bytes_of(TrainingStep step, const List& list, const List& recomputed, RecomputedModule module, int stage) {
  step.layout.num_layer_list = list;
  step.recompute = step.recompute.with_module_list(recomputed, module);
  return step_memory(step, stage).in_memory();
}

double seconds_of(const TrainingStep& step, const ModelTimes& times, const List& list, const List& recomputed,
                  RecomputedModule module) {
  const int stages = static_cast<int>(list.size());
  PipelineSchedule schedule{Placement::even(stages, 1, 0), step.num_microbatches, false, {}};
  std::vector<ActionTimes> actions;
  TrainingStep split = step;
  split.layout.num_layer_list = list;
  double update = 0;
  size_t layer = 0;
  for (int stage = 0; stage < stages; ++stage) {
    schedule.actions.push_back(schedule_training(step.schedule, stage, stages, 1, step.num_microbatches));
    ActionTimes own{.forward = 0, .backward = 0};
    const auto add = [&](const PartTimes& part) { own.forward += part.forward, own.backward += part.backward; };
    if (stage == 0) add(times.embedding);
    for (int64_t i = 0; i < list[static_cast<size_t>(stage)]; ++i, ++layer) {
      add(times.layers[layer]);
      if (i >= recomputed[static_cast<size_t>(stage)]) continue;
      own.backward +=
          module == RecomputedModule::kMlp ? times.layers[layer].recompute_mlp : times.layers[layer].recompute_layer;
    }
    if (stage == stages - 1) add(times.loss);
    actions.push_back(own);
    update =
        std::max(update, times.update_per_element * static_cast<double>(stage_parameters(split, stage).buffer_elems));
  }
  return check_schedule(schedule, actions).makespan + update;
}

// The fastest of all splits, each with the least recomputation that fits, by linear search. nullopt: none fits.
std::optional<double> fastest_of_all(const TrainingStep& step, const ModelTimes& times, int64_t budget) {
  const auto stages = static_cast<size_t>(step.layout.pipeline_model_parallel_size);
  std::optional<double> best;
  for (const RecomputedModule module : {RecomputedModule::kLayer, RecomputedModule::kMlp}) {
    if (budget == kUnlimited && module == RecomputedModule::kMlp) continue;  // nothing is recomputed
    const auto try_list = [&](const List& list) {
      List recomputed(stages, 0);
      for (size_t stage = 0; stage < stages; ++stage) {
        const auto fits = [&] {
          return budget == kUnlimited || bytes_of(step, list, recomputed, module, static_cast<int>(stage)) <= budget;
        };
        while (!fits() && recomputed[stage] < list[stage]) ++recomputed[stage];
        if (!fits()) return;
      }
      const double seconds = seconds_of(step, times, list, recomputed, module);
      if (!best || seconds < *best) best = seconds;
    };
    List list(stages, 0);
    const std::function<void(size_t, int64_t)> extend = [&](size_t stage, int64_t left) {
      if (stage + 1 == stages) {
        list[stage] = left;
        return try_list(list);
      }
      for (list[stage] = 0; list[stage] <= left; ++list[stage]) extend(stage + 1, left - list[stage]);
    };
    extend(0, step.model.num_layers);
  }
  return best;
}

void expect_fastest(const TrainingStep& step, const ModelTimes& times, int64_t budget) {
  const SearchResult result = find_pipeline_split(step, times, budget);
  const PipelineSplit& split = result.split;
  EXPECT_TRUE(result.is_exact);
  EXPECT_EQ(std::accumulate(split.num_layer_list.begin(), split.num_layer_list.end(), int64_t{0}),
            step.model.num_layers);
  int64_t peak = 0;
  for (int stage = 0; stage < step.layout.pipeline_model_parallel_size; ++stage) {
    peak = std::max(peak, bytes_of(step, split.num_layer_list, split.recompute_module_list, split.module, stage));
  }
  EXPECT_EQ(split.peak_bytes, peak);
  EXPECT_NEAR(split.seconds, seconds_of(step, times, split.num_layer_list, split.recompute_module_list, split.module),
              1e-9 * split.seconds);
  const std::optional<double> fastest = fastest_of_all(step, times, budget);
  ASSERT_EQ(fastest.has_value(), result.fits);
  if (fastest) {
    EXPECT_NEAR(split.seconds, *fastest, 1e-9 * *fastest);
    EXPECT_LE(split.peak_bytes, budget);
  }
}

TEST(PipelineSearch, OneHeavyLayerGetsFewNeighbours) {
  const TrainingStep step = step_of(4, 12, 8);
  ModelTimes times = equal_times(12);
  times.layers[5] = {{4, 8}, 3, 1};
  const PipelineSplit split = find_pipeline_split(step, times, kUnlimited).split;
  expect_fastest(step, times, kUnlimited);
  EXPECT_FALSE(split.recomputes());
  EXPECT_LT(split.seconds, 0.9 * expected_of_split(step, times, {3, 3, 3, 3}).seconds);
}

TEST(PipelineSearch, ALargeVocabularyTakesLayersFromTheLastStage) {
  const TrainingStep step = step_of(4, 12, 8, 50'000);
  ModelTimes times = equal_times(12);
  times.loss = {3, 6};
  times.update_per_element = 1e-7;
  expect_fastest(step, times, kUnlimited);
  EXPECT_LE(find_pipeline_split(step, times, kUnlimited).split.num_layer_list.back(), 1);
}

TEST(PipelineSearch, AStageMayHaveTheEmbeddingOrTheLossAlone) {
  const TrainingStep step = step_of(3, 4, 8);
  ModelTimes times = equal_times(4);
  times.embedding = times.loss = {4, 8};
  expect_fastest(step, times, kUnlimited);
  EXPECT_EQ(find_pipeline_split(step, times, kUnlimited).split.num_layer_list, (List{0, 4, 0}));
}

TEST(PipelineSearch, IsTheFastestOfAllSplitsForAnyTimesAndBudget) {
  std::mt19937 random(20261126);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  int recomputing = 0, too_small = 0;
  for (int attempt = 0; attempt < 30; ++attempt) {
    const int stages = 2 + attempt % 3;
    const auto layers = static_cast<int64_t>(draw(stages, 9));
    const auto microbatches = static_cast<int64_t>(draw(1, 12));
    SCOPED_TRACE(testing::Message() << stages << " stages, " << layers << " layers, " << microbatches
                                    << " micro-batches, attempt " << attempt);
    const TrainingStep step = step_of(stages, layers, microbatches);
    ModelTimes times{.embedding = {draw(0, 2), draw(0, 2)}, .loss = {draw(0, 4), draw(0, 4)}};
    for (int64_t i = 0; i < layers; ++i) {
      const double forward = draw(0.5, 2);
      times.layers.push_back({{forward, draw(0.5, 4)}, 0.9 * forward, draw(0, 0.5)});
    }
    times.update_per_element = attempt % 2 == 0 ? 0 : draw(0, 1e-3);
    expect_fastest(step, times, kUnlimited);
    const auto peak = static_cast<double>(find_pipeline_split(step, times, kUnlimited).split.peak_bytes);
    const auto budget = static_cast<int64_t>(peak * draw(0.5, 1));
    expect_fastest(step, times, budget);
    const SearchResult tight = find_pipeline_split(step, times, budget);
    recomputing += tight.fits && tight.split.recomputes();
    too_small += !tight.fits;
  }
  EXPECT_GE(recomputing, 3);
  EXPECT_GE(too_small, 3);
}

TEST(PipelineSearch, WithoutARoomyEnoughSplitTakesTheSmallestPeak) {
  const TrainingStep step = step_of(3, 6, 6);
  const ModelTimes times = equal_times(6);
  const SearchResult result = find_pipeline_split(step, times, 1);
  EXPECT_FALSE(result.fits);
  int64_t smallest = kUnlimited;
  for (int64_t first = 0; first <= 6; ++first) {
    for (int64_t second = 0; first + second <= 6; ++second) {
      const List list = {first, second, 6 - first - second};
      smallest = std::min(smallest, expected_of_split(step, times, list, list).peak_bytes);
    }
  }
  EXPECT_LE(static_cast<double>(result.split.peak_bytes), 1.002 * static_cast<double>(smallest));
}

TrainingStep selective_step(int64_t layers, int64_t microbatches) {
  TrainingStep step = step_of(2, layers, microbatches);
  step.seq_length = 128;  // activations are most of the memory
  step.recompute = RecomputePlan({.granularity = "selective", .mlp_module = true});
  return step;
}

// What the run recomputes anyway does not keep whole layers from being recomputed.
TEST(PipelineSearch, RecomputesWholeLayersOnTopOfModules) {
  const TrainingStep step = selective_step(8, 8);
  const ModelTimes times = equal_times(8);
  const auto peak = static_cast<double>(expected_of_split(step, times, {4, 4}).peak_bytes);
  for (const double share : {0.9, 0.8, 0.7}) {
    SCOPED_TRACE(share);
    const auto budget = static_cast<int64_t>(share * peak);
    expect_fastest(step, times, budget);
    const SearchResult result = find_pipeline_split(step, times, budget);
    EXPECT_TRUE(result.fits && result.split.recomputes());
    EXPECT_EQ(result.split.module, RecomputedModule::kLayer);
  }
}

TEST(PipelineSearch, WhatFitsNowhereNeedsNoMoreThanAnyOther) {
  const TrainingStep step = selective_step(6, 6);
  const ModelTimes times = equal_times(6);
  const SearchResult result = find_pipeline_split(step, times, 1);
  EXPECT_FALSE(result.fits);
  for (int64_t first = 0; first <= 6; ++first) {
    const List list = {first, 6 - first};
    for (int64_t i = 0; i <= list[0]; ++i) {
      for (int64_t j = 0; j <= list[1]; ++j) {
        for (const RecomputedModule module : {RecomputedModule::kLayer, RecomputedModule::kMlp})
          EXPECT_LE(static_cast<double>(result.split.peak_bytes),
                    1.002 * static_cast<double>(expected_of_split(step, times, list, {i, j}, module).peak_bytes))
              << first << ": " << i << ", " << j;
      }
    }
  }
}

// Times that differ only by noise give the same layers and the same micro-batches.
TEST(PipelineSearch, KeepsEvenStagesAndTheGivenSizeWithinTheSpread) {
  const TrainingStep step = step_of(2, 6, 8);
  ModelTimes times = equal_times(6);
  times.loss = {1.55, 3.05};  // 4,2 is faster
  const SearchResult fastest = find_pipeline_split(step, times, kUnlimited);
  ASSERT_EQ(fastest.split.num_layer_list, (List{4, 2}));
  const double gain = expected_of_split(step, times, {3, 3}).seconds / fastest.split.seconds - 1;
  ASSERT_GT(gain, 0);
  times.spread = 1.1 * gain;
  const SearchResult kept = find_pipeline_split_beyond_spread(step, times, kUnlimited);
  EXPECT_EQ(kept.split.num_layer_list, (List{3, 3}));
  ASSERT_TRUE(kept.passed_over);
  EXPECT_EQ(kept.passed_over->num_layer_list, (List{4, 2}));
  times.spread = 0.9 * gain;
  const SearchResult taken = find_pipeline_split_beyond_spread(step, times, kUnlimited);
  EXPECT_EQ(taken.split.num_layer_list, (List{4, 2}));
  EXPECT_FALSE(taken.passed_over);

  std::vector<TrainingStep> steps = {step_of(2, 6, 8), step_of(2, 6, 8)};
  std::vector<ModelTimes> of_sizes = {times, times};
  of_sizes[0].loss.forward += 0.01;  // of the given size: slower by a little
  of_sizes[0].spread = of_sizes[1].spread = 0.05;
  const List budgets = {kUnlimited, kUnlimited};
  EXPECT_EQ(find_micro_batch_size(steps, of_sizes, budgets).size, 1u);
  const SizedSearchResult given = find_micro_batch_size(steps, of_sizes, budgets, 0);
  EXPECT_EQ(given.size, 0u);
  EXPECT_EQ(given.passed_over, std::optional<size_t>(1));
  of_sizes[0].spread = of_sizes[1].spread = 0;
  EXPECT_EQ(find_micro_batch_size(steps, of_sizes, budgets, 0).size, 1u);
}

// Small micro-batches are slow, large ones leave long idle times.
TEST(PipelineSearch, TakesTheMicrobatchSizeWhoseStepIsFastest) {
  const auto step_with = [](int64_t size) {
    TrainingStep step = step_of(3, 7, 16 / size);
    step.micro_batch_size = size;
    return step;
  };
  const auto times_with = [](double size, double overhead) {
    const double part = size + overhead;
    ModelTimes times{.embedding = {0.1 * part, 0.1 * part}, .loss = {0.5 * part, part}};
    times.layers.assign(7, {{part, 2 * part}, 0.8 * part, 0.3 * part});
    return times;
  };
  const List sizes = {1, 2, 4, 8, 16};
  std::vector<TrainingStep> steps;
  for (const int64_t size : sizes) steps.push_back(step_with(size));
  std::vector<size_t> chosen;
  for (const double overhead : {0.0, 1.0, 8.0, 100.0}) {
    std::vector<ModelTimes> times;
    for (const int64_t size : sizes) times.push_back(times_with(static_cast<double>(size), overhead));
    const SizedSearchResult found = find_micro_batch_size(steps, times, List(sizes.size(), kUnlimited));
    chosen.push_back(found.size);
    for (size_t size = 0; size < sizes.size(); ++size) {
      const double fastest = *fastest_of_all(steps[size], times[size], kUnlimited);
      EXPECT_LE(found.result.split.seconds, fastest * (1 + 1e-9)) << "size " << sizes[size];
    }
  }
  EXPECT_EQ(chosen.front(), 0u);
  EXPECT_EQ(chosen.back(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(chosen));
  EXPECT_GT(chosen[1], 0u);
  EXPECT_LT(chosen[1], 4u);
  // The largest one does not fit.
  std::vector<ModelTimes> slow;
  for (const int64_t size : sizes) slow.push_back(times_with(static_cast<double>(size), 100));
  List budgets(sizes.size(), kUnlimited);
  budgets.back() = 1;
  EXPECT_EQ(find_micro_batch_size(steps, slow, budgets).size, 3u);
}

// A hundred layers of one kind and a few heavy ones: near the bound that no split is below.
TEST(PipelineSearch, EndsSoonOnLargeModels) {
  for (const bool limited : {false, true}) {
    const TrainingStep step = step_of(16, 128, 64);
    ModelTimes times = equal_times(128);
    for (const size_t heavy : {17u, 18u, 90u}) times.layers[heavy] = {{5, 10}, 4, 1};
    const int64_t budget = limited ? expected_of_split(step, times, List(16, 8)).peak_bytes * 8 / 10 : kUnlimited;
    const auto start = std::chrono::steady_clock::now();
    const SearchResult result = find_pipeline_split(step, times, budget);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s: %.2f s, %lld splits, %.1f units\n", limited ? "limited" : "unlimited", seconds,
                static_cast<long long>(result.simulated), result.split.seconds);
    EXPECT_TRUE(result.fits);
    EXPECT_LE(result.simulated, 100'000);
    double sum = times.embedding.forward + times.embedding.backward + times.loss.forward + times.loss.backward;
    for (const LayerTimes& layer : times.layers) sum += total(layer);
    const double bound = sum / 16 * 64 + sum * 15 / 16;  // all stages equal
    EXPECT_LT(result.split.seconds, (limited ? 1.4 : 1.1) * bound);
    EXPECT_EQ(result.split.recomputes(), limited);
  }
}

// More layers, stages and micro-batches than can be searched: it says so, and the result depends on nothing but the
// input.
TEST(PipelineSearch, EndsAtItsBoundAndSaysSo) {
  for (const bool limited : {false, true}) {
    const TrainingStep step = limited ? step_of(16, 256, 32) : step_of(16, 64, 1 << 13);
    ModelTimes times = equal_times(step.model.num_layers);
    for (size_t i = 0; i < times.layers.size(); i += 5) times.layers[i] = {{1.5, 3}, 1, 0.5};
    const List even(16, step.model.num_layers / 16);
    const int64_t budget = limited ? expected_of_split(step, times, even).peak_bytes * 7 / 10 : kUnlimited;
    const auto start = std::chrono::steady_clock::now();
    const SearchResult result = find_pipeline_split(step, times, budget);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s: %.2f s, %lld splits, %.1f units\n", limited ? "limited" : "unlimited", seconds,
                static_cast<long long>(result.simulated), result.split.seconds);
    EXPECT_FALSE(result.is_exact);
    EXPECT_TRUE(result.fits);
    EXPECT_LE(result.split.peak_bytes, budget);
    EXPECT_LE(result.split.seconds, expected_of_split(step, times, even, limited ? even : List()).seconds);
    const SearchResult again = find_pipeline_split(step, times, budget);
    EXPECT_EQ(again.split.num_layer_list, result.split.num_layer_list);
    EXPECT_EQ(again.split.recompute_module_list, result.split.recompute_module_list);
  }
}

}  // namespace
}  // namespace ms::layout
