// Documents that share a sample: as if each were alone, in the loss, the gradients, and the work that is counted.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/random_values.h"
#include "tests/support/thread_comm.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"

namespace ms::train {
namespace {

constexpr int32_t kEod = 256;

// Samples [seq + 1] that lie one behind the other in `tokens`.
class Text : public SampleSource {
 public:
  Text(std::vector<int32_t> tokens, int64_t seq) : tokens_(std::move(tokens)), seq_(seq) {}
  int64_t size() const override { return static_cast<int64_t>(tokens_.size()) / seq_; }
  int64_t seq_length() const override { return seq_; }
  void sample(int64_t index, std::span<int32_t> out) const override {
    std::copy_n(tokens_.begin() + index * seq_, out.size(), out.begin());
  }

 private:
  std::vector<int32_t> tokens_;
  int64_t seq_;
};

// Documents of these lengths, eod included, and one token more, the last label.
std::vector<int32_t> text(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> tokens;
  for (const int64_t length : lengths) {
    for (int64_t i = 1; i < length; ++i) tokens.push_back(static_cast<int32_t>(tokens.size() * 37 % 256));
    tokens.push_back(kEod);
  }
  tokens.push_back(11);
  return tokens;
}

struct Gradients {
  double loss = 0;
  std::map<std::string, std::vector<float>> of;  // parameter -> gradient of the sum of the losses
};

Gradients gradients_of(const TrainerConfig& config, const std::vector<Microbatch>& batch) {
  Gradients result;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    rank.parameters->zero_grads();
    result.loss = runner.train(batch, 1).loss;
    for (Parameter& parameter : rank.parameters->all()) {
      const auto values = parameter.main_grad.elements<float>();
      result.of[parameter.spec.key].assign(values.begin(), values.end());
    }
  });
  return result;
}

TEST(PackedDocuments, GiveLossAndGradientsOfTheDocumentsOneByOne) {
  const std::vector<int64_t> lengths = {5, 1, 18, 40, 7, 57};  // of two samples of 64
  const std::vector<int32_t> tokens = text(lengths);
  const EodRules rules{.id = kEod, .reset_attention_mask = true, .reset_position_ids = true};
  const std::vector<std::function<void(TrainerConfig&)>> models = {
      [](TrainerConfig&) {}, [](TrainerConfig& config) { config.model.sliding_window = 9; },
      [](TrainerConfig& config) {
        config.model.position_embedding_type = "learned_absolute";
        config.model.max_position_embeddings = 64;
        config.model.normalization = "LayerNorm";
      },
      [](TrainerConfig& config) { config.training.optimization_level = 0; },
      [](TrainerConfig& config) {
        config.training.recompute_granularity = "full";
        config.training.recompute_method = "uniform";
        config.training.recompute_num_layers = 2;
      }};
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(i);
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path());
    config.training.seq_length = 64;
    config.training.global_batch_size = 2;
    config.training.calculate_per_token_loss = true;
    models[i](config);
    std::vector<Microbatch> packed(1), alone(lengths.size());
    packed[0].samples = {0, 1};
    read_microbatch(Text(tokens, 64), rules, 257, packed[0]);
    int64_t begin = 0;
    for (size_t document = 0; document < lengths.size(); ++document) {
      const std::vector<int32_t> part(tokens.begin() + begin, tokens.begin() + begin + lengths[document] + 1);
      alone[document].samples = {0};
      read_microbatch(Text(part, lengths[document]), {}, 257, alone[document]);
      begin += lengths[document];
    }
    const Gradients together = gradients_of(config, packed), apart = gradients_of(config, alone);
    EXPECT_NEAR(together.loss, apart.loss, 1e-6 * apart.loss);
    ASSERT_EQ(together.of.size(), apart.of.size());
    EXPECT_LT(test::largest_distance(together.of, apart.of), 1e-6);
    // The test can fail: documents that see each other give something else.
    read_microbatch(Text(tokens, 64), {}, 257, packed[0]);
    EXPECT_GT(test::largest_distance(gradients_of(config, packed).of, apart.of), 1e-3);
  }
}

class PackedRuns : public testing::Test {
 protected:
  static RunSummary run(const std::filesystem::path& folder, const test::TinyLayout& layout, bool resets,
                        const std::function<void(TrainerConfig&)>& change = {}) {
    TrainerConfig config = test::tiny_config(folder, layout);
    config.training.seq_length = 64;  // of documents of 61 tokens
    config.training.train_iters = 20;
    config.training.reset_attention_mask = config.training.reset_position_ids = resets;
    if (change) change(config);
    return test::run_on_threads(config, layout.ranks());
  }
};

TEST_F(PackedRuns, AgreeWithOneRankInEveryLayout) {
  test::TemporaryFolder folder;
  const RunSummary one = run(folder.path(), {}, true), crossing = run(folder.path(), {}, false);
  EXPECT_NE(one.steps.back().loss, crossing.steps.back().loss);
  const std::vector<test::TinyLayout> layouts = {{1, 2, 1, false, false, 2}, {1, 2, 1, false, false, 1, "zb-v"},
                                                 {2, 1, 1, false, true},     {2, 2, 1, false, true},
                                                 {1, 1, 2, true, false},     {2, 2, 2, true, true}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const RunSummary seen = run(folder.path(), layout, true);
    ASSERT_EQ(seen.steps.size(), one.steps.size());
    const bool same_bits = layout.tp == 1 && layout.dp == 1;
    for (size_t i = 0; i < one.steps.size(); ++i) {
      const double tolerance = same_bits ? 0 : 1e-5 * one.steps[i].loss;
      EXPECT_NEAR(seen.steps[i].loss, one.steps[i].loss, tolerance) << "step " << i + 1;
    }
  }
}

// What the model needs is what is executed, where nothing is recomputed.
TEST_F(PackedRuns, CountTheFlopsOfVisibleScores) {
  test::TemporaryFolder folder;
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 2, 2, true, true}}) {
    const StepMetrics apart = run(folder.path(), layout, true).steps.back();
    const StepMetrics crossing = run(folder.path(), layout, false).steps.back();
    EXPECT_NEAR(apart.tflops_per_rank, apart.hardware_tflops_per_rank, 1e-9 * apart.tflops_per_rank) << layout.name();
    EXPECT_LT(apart.executed_flops, crossing.executed_flops);
    EXPECT_NEAR(crossing.tflops_per_rank, crossing.hardware_tflops_per_rank, 1e-9 * crossing.tflops_per_rank);
  }
}

}  // namespace
}  // namespace ms::train
