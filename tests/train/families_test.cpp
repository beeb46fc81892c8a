// Models of other families than Llama, and dropout: every layout agrees with one rank within the bounds of
// tests/train/layouts_test.cpp, for every part of a model that has parameters or masks of its own.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::Outcome;
using test::TinyLayout;
using Change = void (*)(train::TrainerConfig&);

constexpr int kSteps = 15;

struct Model {
  const char* name;
  Change change;
};

void gpt2(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.normalization = "LayerNorm";
  model.position_embedding_type = "learned_absolute";
  model.swiglu = false;
  model.add_bias_linear = true;
  model.group_query_attention = false;
  model.num_query_groups = 1;
  model.untie_embeddings_and_output_weights = false;
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.2;
}

void gemma2(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.swiglu = false;
  model.gelu_tanh = true;
  model.apply_layernorm_1p = true;
  model.post_norm = true;
  model.input_embeds_norm = true;
  model.query_pre_attn_scalar = 12;
  model.attn_logit_softcapping = 2;
  model.output_logit_softcapping = 5;
  model.interleave_sliding_window = 5;
  model.untie_embeddings_and_output_weights = false;
}

void glm4(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.add_qkv_bias = true;
  model.post_norm = true;
  model.rotary_interleaved = true;
  model.rotary_percent = 0.5;
  model.hidden_dropout = 0.1;
}

void nemotron(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.normalization = "LayerNorm";
  model.apply_layernorm_1p = true;
  model.swiglu = false;
  model.squared_relu = true;
  model.rotary_percent = 0.5;
}

// What the families above lack: LayerNorm of heads, a window, GELU by erf after a gate, biases but of q, k and v.
void mixture(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.normalization = "LayerNorm";
  model.qk_layernorm = true;
  model.swiglu = false;
  model.geglu = true;
  model.add_dense_bias = model.add_mlp_bias = true;
  model.sliding_window = 6;
  model.attention_dropout = 0.1;
  model.rope_scaling_type = "linear";
  model.rope_scaling_factor = 2;
}

void latent(train::TrainerConfig& config) {
  test::use_latent_attention(config);
  core::TransformerConfig& model = config.model;
  model.rope_scaling_type = "yarn";
  model.rope_scaling_factor = 4;
  model.rope_scaling_mscale = model.rope_scaling_mscale_all_dim = 0.7;
  model.attention_dropout = 0.1;
}

// Sinks in the softmax of each head, and a window in all layers but the last of every two.
void sinks(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.softmax_type = "learnable";
  model.sliding_window = 6;
  model.window_attn_skip_freq = "2";
  model.attention_dropout = 0.1;
}

// An output gate with what Qwen3-Next has besides.
void gated(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.attention_output_gate = true;
  model.qk_layernorm = true;
  model.apply_layernorm_1p = true;
  model.rotary_percent = 0.25;
  model.num_query_groups = 2;
}

void alibi(train::TrainerConfig& config) {
  gpt2(config);
  config.model.position_embedding_type = "alibi";
}

constexpr Model kModels[] = {{"gpt2", gpt2},         {"gemma2", gemma2},   {"glm4", glm4},
                             {"nemotron", nemotron}, {"mixture", mixture}, {"latent", latent},
                             {"sinks", sinks},       {"alibi", alibi},     {"gated", gated}};

const TinyLayout kLayouts[] = {
    // tp, pp, dp, zero, sp, vpp
    {2, 1, 1, false, false, 1}, {4, 1, 1, false, true, 1}, {1, 2, 1, false, false, 1}, {1, 2, 1, false, false, 2},
    {1, 1, 2, true, false, 1},  {2, 2, 2, true, true, 1},  {2, 2, 1, false, true, 2},  {1, 2, 2, true, false, 2},
};

Outcome run(const Model& model, const TinyLayout& layout, const Change& more = nullptr) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.optimizer.lr = 1e-3;
  model.change(config);
  if (more != nullptr) more(config);
  config.training.train_iters = kSteps;
  Outcome outcome = test::outcome_of(config, layout.ranks(), folder / "save");
  // Softmax is invariant to what is added to all keys, and nearly so to biases that slow rotations turn. The gradients
  // of those biases are rounding errors only, from which Adam makes steps of full size.
  std::erase_if(outcome.weights, [](const auto& item) {
    return item.first.ends_with("linear_qkv.bias") || item.first.ends_with("k_layernorm.bias");
  });
  return outcome;
}

class Families : public testing::TestWithParam<Model> {};

TEST_P(Families, EveryLayoutAgreesWithOneRank) {
  const Outcome one = run(GetParam(), {});
  ASSERT_EQ(one.summary.steps.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(std::abs(one.summary.steps.back().loss - one.summary.steps.front().loss), 0.01) << "weights must move";
  for (const TinyLayout& layout : kLayouts) {
    SCOPED_TRACE(layout.name());
    const Outcome other = run(GetParam(), layout);
    if (layout.tp == 1 && layout.dp == 1) {
      test::expect_same_bits(other, one);
      continue;
    }
    for (size_t i = 0; i < one.summary.steps.size(); ++i) {
      const double loss = one.summary.steps[i].loss;
      EXPECT_NEAR(other.summary.steps[i].loss, loss, 1e-5 * loss) << "step " << i + 1;
    }
    EXPECT_LT(test::largest_distance(other.weights, one.weights), 1e-4);
  }
}

TEST_P(Families, RecomputationChangesNoBit) {
  const Change recompute = [](train::TrainerConfig& config) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
  };
  test::expect_same_bits(run(GetParam(), {2, 1, 1, false, true}, recompute), run(GetParam(), {2, 1, 1, false, true}));
}

INSTANTIATE_TEST_SUITE_P(Models, Families, testing::ValuesIn(kModels),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Dropout, ChangesTrainingButNotEvaluation) {
  const Change evaluates = [](train::TrainerConfig& config) {
    config.data.split = "80,20,0";
    config.training.eval_iters = 1;
    config.training.eval_interval = 1000;
    config.optimizer.lr = 1e-12;  // the weights practically do not change
  };
  const Change evaluates_without = [](train::TrainerConfig& config) {
    config.data.split = "80,20,0";
    config.training.eval_iters = 1;
    config.training.eval_interval = 1000;
    config.optimizer.lr = 1e-12;
    config.model.hidden_dropout = config.model.attention_dropout = 0;
  };
  const Outcome with = run(kModels[0], {}, evaluates), without = run(kModels[0], {}, evaluates_without);
  EXPECT_NE(with.summary.steps[0].loss, without.summary.steps[0].loss);
  EXPECT_NEAR(with.summary.validation_loss, without.summary.validation_loss, 1e-5);
}

// Masks belong to samples: a step of two micro-batches of two has the masks of four of one.
TEST(Dropout, MasksDoNotDependOnTheMicroBatchSize) {
  const Outcome one = run(kModels[0], {});
  const Outcome two = run(kModels[0], {}, [](train::TrainerConfig& config) { config.training.micro_batch_size = 2; });
  for (size_t i = 0; i < one.summary.steps.size(); ++i) {
    EXPECT_NEAR(two.summary.steps[i].loss, one.summary.steps[i].loss, 1e-5 * one.summary.steps[i].loss);
  }
}

}  // namespace
}  // namespace ms
