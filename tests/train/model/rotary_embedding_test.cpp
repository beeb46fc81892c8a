#include "train/model/rotary_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace ms::train {
namespace {

core::TransformerConfig config(const std::string& type) {
  core::TransformerConfig c;
  c.position_embedding_type = "rope";
  c.kv_channels = 64;
  c.rotary_base = 10000;
  c.max_position_embeddings = 4096;
  c.rope_scaling_type = type;
  c.rope_scaling_factor = 8;
  return c;
}

double plain(size_t pair) { return std::pow(10000.0, -static_cast<double>(pair) / 32); }

void expect_near(double seen, double want) { EXPECT_NEAR(seen, want, 1e-6 * want); }

TEST(RotaryFrequencies, NoneAndLinear) {
  const auto none = rotary_inverse_frequencies(config("none"), 4096);
  const auto linear = rotary_inverse_frequencies(config("linear"), 4096);
  ASSERT_EQ(none.size(), 32U);
  for (size_t i = 0; i < 32; ++i) {
    expect_near(none[i], plain(i));
    expect_near(linear[i], plain(i) / 8);
  }
}

TEST(RotaryFrequencies, DynamicStretchesOnlyBeyondTheModelsLimit) {
  EXPECT_EQ(rotary_inverse_frequencies(config("dynamic"), 4096), rotary_inverse_frequencies(config("none"), 1));
  const auto stretched = rotary_inverse_frequencies(config("dynamic"), 8192);
  const double base = 10000 * std::pow(8.0 * 2 - 7, 64.0 / 62);
  for (size_t i = 0; i < 32; ++i) expect_near(stretched[i], std::pow(base, -static_cast<double>(i) / 32));
}

TEST(RotaryFrequencies, Llama3KeepsShortWavesAndDividesLongOnes) {
  core::TransformerConfig c = config("llama3");
  c.rope_scaling_original_max_position_embeddings = 1024;
  const auto seen = rotary_inverse_frequencies(c, 4096);
  bool ramp = false;
  for (size_t i = 0; i < 32; ++i) {
    const double wavelength = 2 * std::numbers::pi / plain(i);
    if (wavelength < 1024.0 / 4) {
      expect_near(seen[i], plain(i));
    } else if (wavelength > 1024) {
      expect_near(seen[i], plain(i) / 8);
    } else {
      ramp = true;
      const double smooth = (1024 / wavelength - 1) / 3;
      EXPECT_NEAR(seen[i], (1 - smooth) * plain(i) / 8 + smooth * plain(i), 3e-6 * plain(i));
    }
  }
  EXPECT_TRUE(ramp);
}

TEST(RotaryFrequencies, YarnByTurnsWithinTheOriginalContext) {
  core::TransformerConfig c = config("yarn");
  c.rope_scaling_original_max_position_embeddings = 1024;
  const auto seen = rotary_inverse_frequencies(c, 4096);
  const auto pair_of = [](double turns) {
    return 64 * std::log(1024 / (turns * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  };
  const double first = std::floor(pair_of(32)), last = std::ceil(pair_of(1));
  for (size_t i = 0; i < 32; ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - first) / (last - first)));
    EXPECT_NEAR(seen[i], plain(i) / 8 * ramp + plain(i) * (1 - ramp), 3e-6 * plain(i)) << i;
  }
  expect_near(seen[0], plain(0));
  expect_near(seen[31], plain(31) / 8);
}

TEST(RotaryFrequencies, LongropeByTheListOfTheLength) {
  core::TransformerConfig c = config("longrope");
  c.rope_scaling_original_max_position_embeddings = 1024;
  std::vector<double> short_factors, long_factors;
  for (int i = 0; i < 32; ++i) {
    short_factors.push_back(1 + 0.01 * i);
    long_factors.push_back(1 + 1.37 * i);
  }
  c.rope_scaling_short_factor = core::TransformerConfig::rope_factor_text(short_factors);
  c.rope_scaling_long_factor = core::TransformerConfig::rope_factor_text(long_factors);
  for (const int64_t length : {1, 1024, 1025, 4096}) {
    const auto seen = rotary_inverse_frequencies(c, length);
    const std::vector<double>& factors = length > 1024 ? long_factors : short_factors;
    for (size_t i = 0; i < 32; ++i) expect_near(seen[i], plain(i) / factors[i]);
  }
  EXPECT_FALSE(rotary_frequencies_differ(c, 1, 1024));
  EXPECT_TRUE(rotary_frequencies_differ(c, 1024, 1025));
  EXPECT_FALSE(rotary_frequencies_differ(config("dynamic"), 1024, 1025)) << "whose table is of the longest text";
}

TEST(RotaryAttentionFactor, OfLongropeFromTheLengthsOrGiven) {
  core::TransformerConfig c = config("longrope");
  c.rope_scaling_original_max_position_embeddings = 1024;
  expect_near(rotary_attention_factor(c), std::sqrt(1 + std::log(8.0) / std::log(1024.0)));
  c.rope_scaling_factor = 1;
  EXPECT_EQ(rotary_attention_factor(c), 1);
  c.resolve(0);
  EXPECT_EQ(c.rope_scaling_factor, 4) << "4096 / 1024";
  c.rope_scaling_attention_factor = 1.25;
  EXPECT_EQ(rotary_attention_factor(c), 1.25);
}

TEST(RotaryAttentionFactor, FromTheFactorFromMscaleOrGiven) {
  EXPECT_EQ(rotary_attention_factor(config("llama3")), 1);
  core::TransformerConfig c = config("yarn");
  expect_near(rotary_attention_factor(c), 0.1 * std::log(8.0) + 1);
  c.rope_scaling_mscale = 1;
  c.rope_scaling_mscale_all_dim = 0.5;
  expect_near(rotary_attention_factor(c), (0.1 * std::log(8.0) + 1) / (0.05 * std::log(8.0) + 1));
  c.rope_scaling_attention_factor = 1.25;
  EXPECT_EQ(rotary_attention_factor(c), 1.25);
}

// As yarn_apply_mscale of transformers' models/deepseek_v3 has it for these numbers.
TEST(LatentScoreFactor, IsTheSquareOfYarnsMagnitude) {
  core::TransformerConfig c = config("yarn");
  c.rope_scaling_factor = 40;
  EXPECT_EQ(latent_score_factor(c), 1) << "without --rope-scaling-mscale-all-dim";
  c.rope_scaling_mscale_all_dim = 1;
  EXPECT_NEAR(latent_score_factor(c), 1.8738542070926265, 1e-12);
  c.rope_scaling_mscale = 0.5;  // of cosines and sines only
  c.rope_scaling_mscale_all_dim = 0.707;
  EXPECT_NEAR(latent_score_factor(c), 1.5896261651208736, 1e-12);
  EXPECT_EQ(latent_score_factor(config("llama3")), 1);
}

TEST(RopeTable, OfLatentAttentionRotatesItsPartInNeighbouringPairs) {
  core::Arena arena;
  core::TransformerConfig c = config("none");
  c.multi_latent_attention = true;
  c.qk_head_dim = 10;
  c.qk_pos_emb_head_dim = 6;
  const auto table = make_rope_table(arena, c, {{0, 9}}, 9);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->dim(), 6);
  EXPECT_EQ(table->pairs(), ops::RopePairs::kNeighbours);
}

TEST(RopeTable, OnlyOfModelsThatRotate) {
  core::Arena arena;
  core::TransformerConfig c = config("none");
  c.rotary_percent = 0.5;
  c.rotary_interleaved = true;
  const auto table = make_rope_table(arena, c, {{0, 100}}, 100);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->dim(), 32);
  EXPECT_EQ(table->rows(), 100);
  EXPECT_EQ(table->pairs(), ops::RopePairs::kNeighbours);
  c.position_embedding_type = "learned_absolute";
  EXPECT_FALSE(make_rope_table(arena, c, {{0, 100}}, 100));
}

}  // namespace
}  // namespace ms::train
