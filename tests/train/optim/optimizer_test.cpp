#include "train/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

// After one step m = (1 - beta1) g and v = (1 - beta2) g^2 for any g, so m^2 / v = 10 at beta1 0.9, beta2 0.999. A
// beta2 that passed through fp32 is detected: its 1 - beta2 is off by 1.3e-5.
TEST(Optimizer, MomentsDecayByTheConfiguredDoubles) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.optimizer.adam_beta1 = 0.9;
  config.optimizer.adam_beta2 = 0.999;
  config.checkpoint.save = folder / "save";
  const train::RunSummary summary = test::run_on_threads(config, 1);
  const auto exp_avg = test::read_tensors(summary.checkpoint, core::TensorRole::kExpAvg);
  const auto exp_avg_sq = test::read_tensors(summary.checkpoint, core::TensorRole::kExpAvgSq);
  ASSERT_EQ(exp_avg.size(), exp_avg_sq.size());
  size_t compared = 0;
  for (const auto& [name, m] : exp_avg) {
    const std::vector<float>& v = exp_avg_sq.at(name);
    for (size_t i = 0; i < m.size(); ++i) {
      if (v[i] < 1e-25F) continue;  // g^2 loses bits near the smallest normal number
      ASSERT_NEAR(static_cast<double>(m[i]) * m[i] / v[i], 10.0, 5e-6) << name << "[" << i << "]";
      ++compared;
    }
  }
  EXPECT_GT(compared, 10000U);
}

using Tensors = std::map<std::string, std::vector<float>>;

// The weights after `steps` steps.
Tensors weights_after(train::TrainerConfig config, const std::string& save, int64_t steps) {
  config.training.train_iters = steps;
  config.checkpoint.save = save;
  const int ranks = config.parallel.tensor_model_parallel_size * config.parallel.pipeline_model_parallel_size;
  return test::read_tensors(test::run_on_threads(config, ranks).checkpoint, core::TensorRole::kParam);
}

double norm_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

// A first step of AdamW is lr x sign(gradient) + lr x weight decay x weight: it scales with the learning rate.
TEST(DecoupledLr, IsThatOfEmbeddingsAndOutputLayerOnly) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.optimizer.lr = 1e-30;
  const Tensors before = weights_after(config, folder / "before", 1);
  config.optimizer.lr = 3e-3;
  const Tensors plain = weights_after(config, folder / "plain", 1);
  config.optimizer.decoupled_lr = 1e-3;
  const Tensors decoupled = weights_after(config, folder / "decoupled", 1);
  size_t own = 0;
  for (const auto& [name, values] : plain) {
    if (name != "embedding.word_embeddings.weight" && name != "output_layer.weight") {
      EXPECT_EQ(decoupled.at(name), values) << name;
      continue;
    }
    ++own;
    const double full = norm_of_difference(values, before.at(name));
    EXPECT_GT(full, 0);
    EXPECT_NEAR(norm_of_difference(decoupled.at(name), before.at(name)), full / 3, 1e-4 * full) << name;
  }
  EXPECT_EQ(own, 2U);
  config.optimizer.decoupled_lr = config.optimizer.lr;
  EXPECT_EQ(weights_after(config, folder / "equal", 1), plain);
}

// Of the vectors of a model, only the norms of heads decay: by lr x weight decay x weight in a first step, whose
// gradients are the same.
TEST(WeightDecay, IsOfQkNormsIfRequested) {
  for (const bool packed : {false, true}) {
    const test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {2, 1, 1, false, true});
    config.model.qk_layernorm = true;
    config.training.packed_weights = packed;
    config.optimizer.weight_decay = 0.5;
    const Tensors plain = weights_after(config, folder / "plain", 1);
    config.optimizer.apply_wd_to_qk_layernorm = true;
    const Tensors decayed = weights_after(config, folder / "decayed", 1);
    size_t norms = 0;
    for (const auto& [name, values] : plain) {
      const bool of_heads =
          name.find("q_layernorm") != std::string::npos || name.find("k_layernorm") != std::string::npos;
      if (!of_heads) {
        EXPECT_EQ(decayed.at(name), values) << name;
        continue;
      }
      ++norms;
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(decayed.at(name)[i], values[i] - 3e-3 * 0.5, 1e-6) << name << "[" << i << "]";  // the weight was 1
      }
    }
    EXPECT_EQ(norms, 8U);  // two in each of 4 layers
  }
}

// A tied embedding is on two stages, whose copies must move alike.
TEST(DecoupledLr, IsTheSameOnEveryLayout) {
  const test::TemporaryFolder folder;
  Tensors expected;
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 1, 1, false, true},
                                         test::TinyLayout{1, 2, 1, true}, test::TinyLayout{2, 2, 1, false, true, 2}}) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.model.untie_embeddings_and_output_weights = false;
    config.optimizer.decoupled_lr = 3e-4;
    const Tensors weights = weights_after(config, folder / layout.name(), 8);
    if (expected.empty()) expected = weights;
    EXPECT_LT(test::largest_distance(weights, expected), 1e-3) << layout.name();
  }
}

TEST(DecoupledLr, IsKeptByAContinuedRunAndReported) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.scheduler.lr_decay_style = "linear";
  config.scheduler.lr_decay_iters = 6;
  config.optimizer.decoupled_lr = 1e-3;
  config.optimizer.decoupled_min_lr = 5e-4;
  const Tensors whole = weights_after(config, folder / "whole", 6);
  config.logger.metrics_path = folder / "metrics";
  config.training.exit_interval = 3;
  config.checkpoint.load = folder / "parts";
  weights_after(config, folder / "parts", 6);
  EXPECT_EQ(weights_after(config, folder / "parts", 6), whole);
  std::ifstream file(folder / "metrics");
  double expected = 1e-3;
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines, expected -= 5e-4 / 6) {
    EXPECT_NEAR(nlohmann::json::parse(line).at("decoupled learning rate").get<double>(), expected, 1e-12);
  }
  EXPECT_EQ(lines, 6);
  config.optimizer.decoupled_lr = 2e-3;
  config.training.exit_interval = 0;
  EXPECT_NE(test::thrown_by([&] { weights_after(config, folder / "parts", 9); }).text.find("--decoupled-lr"),
            std::string::npos);
}

}  // namespace
}  // namespace ms
