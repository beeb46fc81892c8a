// What a run does besides stepping: evaluation, generation, metrics, masked losses; equal on every layout.
#include "train/loop/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/reader.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

class TrainedModel : public testing::Test {
 protected:
  void SetUp() override {
    train::TrainerConfig config = test::tiny_config(folder_.path());
    config.training.train_iters = 60;
    config.checkpoint.save = folder_ / "trained";
    test::run_on_threads(config, 1);
  }

  train::TrainerConfig config_for(const TinyLayout& layout) {
    train::TrainerConfig config = test::tiny_config(folder_.path(), layout);
    config.checkpoint.load = folder_ / "trained";
    return config;
  }

  test::TemporaryFolder folder_;
};

TEST_F(TrainedModel, GeneratesTheSameTextOnEveryLayout) {
  std::string expected;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 1, false, false},
                                   TinyLayout{2, 2, 1, false, true}, TinyLayout{1, 2, 1, false, false, 2}}) {
    train::TrainerConfig config = config_for(layout);
    config.generate.generate = "ab";
    config.generate.num_tokens_to_generate = 24;  // longer than the context of 16, so the window slides
    config.generate.temperature = 0;
    const std::string text = test::run_on_threads(config, layout.ranks()).generated;
    EXPECT_EQ(text.substr(0, 2), "ab");
    EXPECT_GE(text.size(), 3U);
    if (expected.empty()) expected = text;
    EXPECT_EQ(text, expected) << layout.name();
  }
}

// Generation stops at the end of the table of learned positions, also if the ranks' parts would reach beyond it.
TEST(Generation, StopsAtTheEndOfLearnedPositions) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.model.position_embedding_type = "learned_absolute";
  config.model.max_position_embeddings = 18;
  config.training.train_iters = 1;
  config.checkpoint.save = folder / "trained";
  test::run_on_threads(config, 1);
  config = test::tiny_config(folder.path(), {4, 1, 1, false, true});
  config.model.position_embedding_type = "learned_absolute";
  config.model.max_position_embeddings = 18;
  config.checkpoint.load = folder / "trained";
  config.generate.generate = "abcdefghijklmnopq";
  config.generate.num_tokens_to_generate = 4;
  EXPECT_GE(test::run_on_threads(config, 4).generated.size(), 17U);
}

// A model may have more ids than its tokenizer, as Qwen2's: the text consists of those that it knows.
TEST(Generation, ChoosesIdsOfTheTokenizerOnly) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.model.vocab_size = 1000;  // of a byte-level tokenizer's 257
  config.model.max_position_embeddings = 16;
  config.generate.generate = "ab";
  config.generate.num_tokens_to_generate = 24;
  for (const double temperature : {0.0, 1.0}) {
    config.generate.temperature = temperature;
    EXPECT_EQ(test::run_on_threads(config, 1).generated.substr(0, 2), "ab");
  }
}

// With --use-checkpoint-args, the positions of the checkpoint suffice.
TEST_F(TrainedModel, GeneratesWithoutASequenceLength) {
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 1, false, true}}) {
    train::TrainerConfig config = config_for(layout);
    config.training.seq_length = 0;
    config.model.max_position_embeddings = 16;
    config.generate.generate = "ab";
    config.generate.num_tokens_to_generate = 4;
    EXPECT_GE(test::run_on_threads(config, layout.ranks()).generated.size(), 2U) << layout.name();
    config.model.max_position_embeddings = 0;
    EXPECT_NE(test::thrown_by([&] { test::run_on_threads(config, layout.ranks()); }).text.find("--seq-length"),
              std::string::npos);
  }
}

TEST_F(TrainedModel, EvaluatesTheSameLossOnEveryLayout) {
  double expected = 0;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 2, true, false},
                                   TinyLayout{1, 2, 1, false, false, 2}}) {
    train::TrainerConfig config = config_for(layout);
    config.training.skip_train = true;
    config.training.eval_iters = 3;
    config.data.split = "50,50,0";
    const double loss = test::run_on_threads(config, layout.ranks()).validation_loss;
    if (expected == 0) expected = loss;
    EXPECT_LT(loss, 5.0);  // it has learned: below ln(257)
    EXPECT_NEAR(loss, expected, 1e-5 * expected) << layout.name();
  }
}

// The values of "lm loss validation" (or `key`) in a run's --metrics-path, in order.
std::vector<double> evaluations(const std::filesystem::path& metrics, const std::string& key = "lm loss validation") {
  std::vector<double> losses;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains(key)) losses.push_back(json[key]);
  }
  return losses;
}

// A run whose weights practically do not change, evaluated at iterations 2, 4 and 5.
train::TrainerConfig evaluated_run(const test::TemporaryFolder& folder, const std::string& metrics) {
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.optimizer.lr = 1e-30;
  config.optimizer.weight_decay = 0;
  config.training.train_iters = 5;
  config.training.eval_interval = 2;
  config.training.eval_iters = 2;
  config.data.split = "50,50,0";
  config.logger.metrics_path = folder / metrics;
  return config;
}

// As Megatron's iterator: an evaluation begins after the samples of the one before, in a continued run at iteration //
// eval_interval * eval_iters * global_batch_size.
TEST(Evaluation, BeginsAfterThePreviousOnesSamples) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = evaluated_run(folder, "whole");
  config.checkpoint.save = folder / "saved";
  test::run_on_threads(config, 1);
  const std::vector<double> losses = evaluations(folder / "whole");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);

  // The three together read what one evaluation of three times as many batches reads.
  train::TrainerConfig all = evaluated_run(folder, "all");
  all.training.skip_train = true;
  all.training.eval_iters = 6;
  test::run_on_threads(all, 1);
  EXPECT_NEAR(evaluations(folder / "all").at(0), (losses[0] + losses[1] + losses[2]) / 3, 1e-6);

  // In two parts: the same three evaluations.
  for (const int64_t until : {3, 5}) {
    config = evaluated_run(folder, "parts");
    config.checkpoint.save = config.checkpoint.load = folder / "parts_saved";
    config.training.exit_interval = until;
    test::run_on_threads(config, 1);
  }
  EXPECT_EQ(evaluations(folder / "parts"), losses);
}

// A batch of its own, larger or smaller than the training's: the same samples in as many batches.
TEST(Evaluation, HasItsOwnGlobalBatch) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = evaluated_run(folder, "as_training");
  config.training.eval_iters = 4;
  const train::RunSummary as_training = test::run_on_threads(config, 1);
  std::vector<double> expected = evaluations(folder / "as_training");
  ASSERT_EQ(expected.size(), 3U);
  for (const auto& [size, iters] : {std::pair(16, 1), std::pair(8, 2), std::pair(2, 8)}) {
    const std::string name = core::cat("batches_of_", size);
    config = evaluated_run(folder, name);
    config.training.eval_global_batch_size = size;
    config.training.eval_iters = iters;
    const train::RunSummary other = test::run_on_threads(config, 1);
    EXPECT_EQ(other.steps.back().loss, as_training.steps.back().loss);
    const std::vector<double> losses = evaluations(folder / name);
    ASSERT_EQ(losses.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6 * expected[i]) << name << " " << i;
  }
}

TEST(Evaluation, ReadsFixedSamplesIfRequested) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = evaluated_run(folder, "fixed");
  config.training.fixed_eval_samples = true;
  test::run_on_threads(config, 1);
  const std::vector<double> losses = evaluations(folder / "fixed");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
}

// Weights that overflow.
TEST(Evaluation, NonFiniteLossIsAnErrorOnAllRanks) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, false, false});
  config.training.train_iters = 1;
  config.optimizer.lr = 1e39;
  config.checkpoint.save = folder / "saved";
  test::run_on_threads(config, 2);
  config.checkpoint.save.clear();
  config.checkpoint.load = folder / "saved";
  config.training.skip_train = true;
  config.training.eval_iters = 1;
  config.data.split = "50,50,0";
  const test::Thrown thrown = test::thrown_by([&] { test::run_on_threads(config, 2); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_NE(thrown.text.find("not finite"), std::string::npos) << thrown.text;
  config.training.check_for_nan_in_loss_and_grad = false;
  EXPECT_FALSE(test::run_on_threads(config, 2).validation_loss > 0);
}

// Made-up documents count upwards, which is soon learned. On every layout, and without a file.
TEST(MockData, TrainsAndEvaluatesWithoutFiles) {
  std::vector<double> expected;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 2, true, true}, TinyLayout{1, 2, 1}}) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.data.data_path.clear();
    config.data.mock_data = true;
    config.training.seq_length = 128;
    config.training.train_iters = 40;
    config.training.eval_iters = 2;
    const train::RunSummary summary = test::run_on_threads(config, layout.ranks());
    EXPECT_LT(summary.steps.back().loss, 0.9 * summary.steps.front().loss);
    EXPECT_GT(summary.validation_loss, 0);
    EXPECT_GT(summary.test_loss, 0);
    for (size_t i = 0; i < 40; ++i) {
      if (expected.size() <= i) expected.push_back(summary.steps[i].loss);
      EXPECT_NEAR(summary.steps[i].loss, expected[i], 1e-4 * expected[i]) << layout.name() << " step " << i + 1;
    }
  }
}

// As in Megatron: once, after the last step, from the first sample.
TEST(TestSet, IsEvaluatedAtTheEnd) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 4;
  config.training.eval_interval = 2;
  config.training.eval_iters = 2;
  config.training.exit_interval = 3;
  config.data.split = "50,20,30";
  config.checkpoint.save = config.checkpoint.load = folder / "saved";
  config.logger.metrics_path = folder / "metrics";
  EXPECT_EQ(test::run_on_threads(config, 1).test_loss, -1) << "not at the end yet";
  const train::RunSummary whole = test::run_on_threads(config, 1);
  EXPECT_GT(whole.test_loss, 0);
  EXPECT_EQ(evaluations(folder / "metrics", "lm loss test"), std::vector{whole.test_loss});
  EXPECT_EQ(evaluations(folder / "metrics").size(), 2U);

  // --skip-train evaluates the test set too, or it alone if there is no validation set.
  config.training.skip_train = true;
  EXPECT_EQ(test::run_on_threads(config, 1).test_loss, whole.test_loss);
  config.data.split = "70,0,30";
  const train::RunSummary alone = test::run_on_threads(config, 1);
  EXPECT_EQ(alone.validation_loss, -1);
  EXPECT_EQ(alone.test_loss, whole.test_loss);
  // From a path of its own.
  config.data.test_data_path = config.data.data_path;
  config.data.data_path.clear();
  config.data.split.clear();
  EXPECT_GT(test::run_on_threads(config, 1).test_loss, 0);
}

TEST(TestSet, MissingPathIsAnErrorEvenIfUnread) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.data.train_data_path = config.data.data_path;
  config.data.data_path.clear();
  config.data.split.clear();
  config.data.test_data_path = {folder / "absent"};
  for (const int64_t eval_iters : {0, 1}) {
    config.training.eval_iters = eval_iters;
    const test::Thrown thrown = test::thrown_by([&] { test::run_on_threads(config, 1); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kNotFound);
    EXPECT_NE(thrown.text.find("absent.idx"), std::string::npos) << thrown.text;
  }
}

// Flags that have no effect on the model do not make it another model; those that change the rotary frequencies do.
TEST(LoadedModel, AcceptsFlagsThatComputeTheSame) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.model.rope_scaling_type = "dynamic";
  config.model.rope_scaling_factor = 4;
  config.training.train_iters = 1;
  config.checkpoint.save = folder / "saved";
  test::run_on_threads(config, 1);

  train::TrainerConfig again = test::tiny_config(folder.path());
  again.model.rope_scaling_type = "dynamic";
  again.model.rope_scaling_factor = 4;
  again.checkpoint.load = folder / "saved";
  again.training.skip_train = true;
  again.training.eval_iters = 1;
  again.training.seq_length = 24;  // beyond the 16 it was made for: the frequencies are scaled
  again.data.split = "50,50,0";
  again.model.bias_gelu_fusion = false;  // it has SwiGLU
  const double stretched = test::run_on_threads(again, 1).validation_loss;
  again.model.max_position_embeddings = 24;
  EXPECT_THROW(test::run_on_threads(again, 1), core::Error);

  again.model.max_position_embeddings = 0;
  again.model.rope_scaling_type = "none";
  again.model.rope_scaling_factor = 1;
  EXPECT_THROW(test::run_on_threads(again, 1), core::Error) << "another model";
  EXPECT_GT(stretched, 0);
}

TEST(PerTokenLoss, DoesNotDependOnMicrobatches) {
  // With masked tokens, a mean of means would depend on how samples are grouped; a mean over tokens does not.
  double expected = 0;
  for (const auto& [micro, dp] :
       {std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, dp, false, false});
    config.training.train_iters = 4;
    config.training.micro_batch_size = micro;
    config.training.calculate_per_token_loss = true;
    config.data.eod_mask_loss = true;
    const auto summary = test::run_on_threads(config, dp);
    if (expected == 0) expected = summary.steps.back().loss;
    EXPECT_NEAR(summary.steps.back().loss, expected, 1e-5 * expected) << "micro batch " << micro << ", dp " << dp;
  }
}

TEST(Metrics, WriteALinePerStepUnderMegatronsNames) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 3;
  config.logger.metrics_path = folder / "metrics.jsonl";
  const auto summary = test::run_on_threads(config, 1);
  std::ifstream file(config.logger.metrics_path);
  size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["iteration"], lines + 1);
    EXPECT_EQ(json["lm loss"].get<double>(), summary.steps[lines].loss);  // every digit is preserved
    EXPECT_GT(json["tokens/s"].get<double>(), 0);
    EXPECT_GT(json["throughput per rank (TFLOP/s)"].get<double>(), 0);
    EXPECT_GT(json["peak memory bytes"]["act"].get<int64_t>(), 0);
  }
  EXPECT_EQ(lines, 3U);
}

// --log-params-norm is the norm of the saved parameters; --log-num-zeros-in-grad counts the embedding rows of tokens
// that are in no sample.
TEST(Metrics, ParamsNormAndNumZerosCoverTheWholeModel) {
  double norm = 0, zeros = 0;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 2, true, false}}) {
    for (const bool bf16 : {false, true}) {
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.train_iters = 2;
      config.training.bf16 = bf16;
      config.model.vocab_size = 257;
      config.logger.log_params_norm = config.logger.log_num_zeros_in_grad = true;
      config.checkpoint.save = folder / "saved";
      const train::RunSummary run = test::run_on_threads(config, layout.ranks());
      double squares = 0;
      for (const auto& [name, values] :
           test::read_tensors(run.checkpoint, bf16 ? core::TensorRole::kMaster : core::TensorRole::kParam)) {
        for (const float value : values) squares += static_cast<double>(value) * value;
      }
      EXPECT_NEAR(run.steps.back().params_norm, std::sqrt(squares), 1e-6 * std::sqrt(squares)) << layout.name();
      if (bf16) continue;
      // Padding rows of the embedding and of the output layer have gradient 0.
      const auto padding = static_cast<double>(2 * 32 * (config.model.padded_vocab_size(layout.tp) - 257));
      if (layout.ranks() == 1) norm = run.steps[0].params_norm, zeros = run.steps[0].num_zeros - padding;
      EXPECT_NEAR(run.steps[0].params_norm, norm, 1e-6 * norm) << layout.name();
      EXPECT_EQ(run.steps[0].num_zeros - padding, zeros) << layout.name();
      EXPECT_GT(zeros, 32 * 100);  // 64 tokens of 257
    }
  }
}

// With beta1 0 and no clipping the first moment is the gradient, here of one micro-batch.
TEST(GradientAccumulationFusion, OffRoundsTheGradientsOfLinearLayersToTheirDtype) {
  const auto is_linear = [](const std::string& name) {
    return name.ends_with("output_layer.weight") || (name.find("linear_") != name.npos && name.ends_with(".weight"));
  };
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{2, 2, 1, false, true}}) {
    for (const bool fused : {true, false}) {
      test::TemporaryFolder folder;
      train::TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.training.train_iters = 1;
      config.training.bf16 = true;
      config.training.micro_batch_size = config.training.global_batch_size;
      config.training.gradient_accumulation_fusion = fused;
      config.optimizer.adam_beta1 = config.optimizer.clip_grad = 0;
      config.checkpoint.save = folder / "saved";
      const train::RunSummary run = test::run_on_threads(config, layout.ranks());
      int linear = 0;
      for (const auto& [name, gradient] : test::read_tensors(run.checkpoint, core::TensorRole::kExpAvg)) {
        if (!is_linear(name)) continue;
        ++linear;
        EXPECT_EQ(std::ranges::all_of(gradient, [](float g) { return kernels::to_float(kernels::bf16(g)) == g; }),
                  !fused)
            << layout.name() << " " << name;
      }
      EXPECT_EQ(linear, 4 * 4 + 1);
    }
  }
}

// Receive buffers of reductions are part of the peak, and their peak is of this step.
TEST(Metrics, PeakMemoryIncludesCommunicationBuffersOfTheStep) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, false, false});
  config.training.train_iters = 3;
  config.training.iterations_to_skip = {3};
  config.parallel.shared_memory = false;
  const auto steps = test::run_on_threads(config, 2).steps;
  const auto comm = [&](size_t step) { return steps.at(step).peak_bytes[static_cast<size_t>(core::MemoryTag::kComm)]; };
  const auto grad = [&](size_t step) { return steps.at(step).peak_bytes[static_cast<size_t>(core::MemoryTag::kGrad)]; };
  EXPECT_GT(comm(1), 10000);
  EXPECT_GE(steps[1].total_peak_bytes, comm(1) + grad(1));
  EXPECT_LT(comm(2), 1000) << "nothing was reduced but a few numbers";
}

// No family is stored, since none was given; exports infer it from the shape.
TEST(Checkpoint, OfARunFromScratchStoresNoFamily) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.checkpoint.save = folder / "saved";
  test::run_on_threads(config, 1);
  EXPECT_FALSE(ckpt::open_native(folder / "saved")->info().model_extra.contains("family"));
}

TEST(Metrics, SkippedIterationHasNoLossAndNoSpeed) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 3;
  config.training.iterations_to_skip = {2};
  config.logger.metrics_path = folder / "metrics.jsonl";
  const auto summary = test::run_on_threads(config, 1);
  std::ifstream file(config.logger.metrics_path);
  std::string text;
  for (size_t step = 0; std::getline(file, text); ++step) {
    const auto json = nlohmann::json::parse(text);
    train::LogInterval interval;
    interval.add(summary.steps.at(step));
    std::string line;
    interval.write_line(false, line);
    EXPECT_EQ(json["number of skipped iterations"], step == 1 ? 1 : 0);
    for (const char* key : {"lm loss", "grad norm", "tokens/s"}) {
      EXPECT_EQ(json.contains(key), step != 1) << key;
      EXPECT_EQ(line.find(std::string(" ") + key + ": ") != std::string::npos, step != 1) << line;
    }
    EXPECT_EQ(json.contains("throughput per rank (TFLOP/s)"), step != 1);
    EXPECT_EQ(json.contains("mfu"), step != 1);
  }
}

// A model's vocabulary includes the NullTokenizer's eod, --vocab-size does not.
TEST(NullTokenizer, ModelIsReadFromCheckpointAndConfiguration) {
  test::TemporaryFolder folder;
  const auto config_of_run = [&] {
    train::TrainerConfig config = test::tiny_config(folder.path());
    config.data.tokenizer_type = "NullTokenizer";
    config.checkpoint.save = folder / "save";
    return config;
  };
  train::TrainerConfig config = config_of_run();
  config.model.vocab_size = 256;
  config.training.train_iters = 1;
  const auto first = ckpt::open_native(test::run_on_threads(config, 1).checkpoint)->info();
  EXPECT_EQ(first.model.vocab_size, 257);

  config = config_of_run();  // --use-checkpoint-args
  core::ConfigFields fields = config.fields();
  train::take_model_from(first.model, fields, config);
  EXPECT_EQ(config.model.vocab_size, 256);
  config.checkpoint.load = config.checkpoint.save;
  config.training.train_iters = 2;
  const auto second = ckpt::open_native(test::run_on_threads(config, 1).checkpoint)->info();
  EXPECT_EQ(second.model.vocab_size, 257);

  config = config_of_run();  // --config
  core::ConfigFields again = config.fields();
  again.load_json(second.common.at("config"), "the checkpoint's configuration");
  config.checkpoint.load = config.checkpoint.save;
  config.training.train_iters = 3;
  EXPECT_EQ(ckpt::open_native(test::run_on_threads(config, 1).checkpoint)->info().model.vocab_size, 257);
}

TEST(EodMaskLoss, RequiresATokenizerWithEod) {
  test::TemporaryFolder folder;
  test::write_file(folder / "tokenizer.json",
                   R"({"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1}, "merges": []}})");
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.data.tokenizer_type = "HuggingFaceTokenizer";
  config.data.tokenizer_model = folder / "tokenizer.json";
  config.model.vocab_size = 257;
  config.data.eod_mask_loss = true;
  const test::Thrown thrown = test::thrown_by([&] { test::run_on_threads(config, 1); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_NE(thrown.text.find("--eod-mask-loss needs an end-of-document token, which HuggingFaceTokenizer "),
            std::string::npos)
      << thrown.text;
  EXPECT_NE(thrown.text.find("put eos_token into tokenizer_config.json"), std::string::npos) << thrown.text;
  config.data.eod_mask_loss = false;
  EXPECT_EQ(test::run_on_threads(config, 1).steps.size(), 1U);
}

TEST(Flops, AgreeWithTheFormula) {
  // 6 x matrix parameters x tokens, and attention's 6 * layers * width * seq per token, halved for the causal mask
  // (core/layout/formulas/flops.h).
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 2;
  const auto step = test::run_on_threads(config, 1).steps.back();
  const auto& model = config.model;
  const double hidden = static_cast<double>(model.hidden_size), seq = 16, tokens = 4 * seq;
  const double width = static_cast<double>(model.num_attention_heads * model.kv_channels);
  const double layer = hidden * static_cast<double>(model.qkv_rows()) + hidden * width +
                       3 * hidden * static_cast<double>(model.ffn_hidden_size);
  const double matrices = 4 * layer + 272 * hidden;  // the output layer with its padded vocabulary
  const double expected = 6 * matrices * tokens + 6 * 4 * width * seq * tokens;
  EXPECT_NEAR(step.tflops_per_rank * 1e12 * step.seconds, expected, 0.03 * expected);
}

TEST(Start, ContradictoryFlagsAreOneErrorOnAllRanks) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {2, 1, 1, false, false});
  config.training.train_iters = 1;
  config.data.data_path = {folder / "nothing"};
  try {
    test::run_on_threads(config, 2);
    FAIL();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kNotFound) << e.what();
  }
}

// MindSpore's data_parallel without gradients_mean adds the gradients of the D replicas: exactly D times their mean.
TEST(ParallelMode, SumIsTheMeanTimesTheReplicas) {
  const auto first_norm = [](const std::string& mode, bool mean) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {.dp = 2});
    config.parallel.parallel_mode = mode;
    config.parallel.gradients_mean = mean;
    config.training.train_iters = 1;
    return test::run_on_threads(config, 2).steps.at(0).grad_norm;
  };
  const double megatron = first_norm("", false);
  EXPECT_EQ(first_norm("data_parallel", true), megatron);
  EXPECT_EQ(first_norm("data_parallel", false), 2 * megatron);
}

}  // namespace
}  // namespace ms
