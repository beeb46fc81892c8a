// Keys of torch_dist, in both directions.
#include "convert/megatron/dist_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

core::TransformerConfig model_of_experts(const char* layers, bool latent = false) {
  core::TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.ffn_hidden_size = 12;
  config.add_bias_linear = false;
  config.swiglu = true;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.untie_embeddings_and_output_weights = true;
  config.num_experts = 3;
  config.moe_ffn_hidden_size = 6;
  config.moe_layer_freq = layers;
  config.mtp_num_layers = 1;
  config.max_position_embeddings = 4;
  config.vocab_size = 8;
  if (latent) {
    config.multi_latent_attention = config.qk_layernorm = true;
    config.q_lora_rank = config.kv_lora_rank = 4;
    config.qk_head_dim = config.qk_pos_emb_head_dim = config.v_head_dim = 2;
  }
  config.resolve(0);
  return config;
}

DistKey key_of(const core::TransformerConfig& model, const std::string& key, MegatronNaming naming) {
  for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) {
    if (spec.key == key) return dist_key(spec, model, naming);
  }
  ADD_FAILURE() << key << " is no parameter";
  return {};
}

TEST(DistKeysTest, EqualLayersAreStackedThenExperts) {
  const core::TransformerConfig model = model_of_experts("1");
  const DistKey expert =
      key_of(model, "decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight", MegatronNaming::kLocal);
  EXPECT_EQ(expert.key, "decoder.layers.mlp.experts.experts.linear_fc1.weight");
  EXPECT_THAT(expert.stack, ElementsAre(2, 3));
  EXPECT_THAT(expert.at, ElementsAre(1, 2));
  const DistKey norm = key_of(model, "decoder.layers.1.pre_mlp_layernorm.weight", MegatronNaming::kLocal);
  EXPECT_EQ(norm.key, "decoder.layers.mlp.linear_fc1.layer_norm_weight");
  EXPECT_EQ(key_of(model, "decoder.layers.1.pre_mlp_layernorm.weight", MegatronNaming::kTransformerEngine).key,
            "decoder.layers.pre_mlp_layernorm.weight");
  const DistKey behind = key_of(model, "mtp.layers.0.transformer_layer.mlp.experts.local_experts.2.linear_fc2.weight",
                                MegatronNaming::kLocal);
  EXPECT_EQ(behind.key, "mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc2.weight");
  EXPECT_THAT(behind.at, ElementsAre(2));
}

TEST(DistKeysTest, UnequalLayersHaveTheirIndex) {
  const core::TransformerConfig model = model_of_experts("[0,1]", true);
  const DistKey norm = key_of(model, "decoder.layers.0.mlp.linear_fc1.layer_norm_weight", MegatronNaming::kLocal);
  EXPECT_EQ(norm.key, "decoder.layers.0.pre_mlp_layernorm.weight") << "latent attention's layers keep their names";
  EXPECT_THAT(norm.stack, IsEmpty());
  EXPECT_EQ(
      key_of(model, "decoder.layers.1.self_attention.linear_kv_up_proj.layer_norm_weight", MegatronNaming::kLocal).key,
      "decoder.layers.1.self_attention.kv_layernorm.weight");
}

// For every layer implementation each parameter has a unique place and is found again from it.
TEST(DistKeysTest, ParsingInvertsEveryKey) {
  for (const core::TransformerConfig& model :
       {model_of_experts("1"), model_of_experts("[0,1]"), model_of_experts("[0,1]", true)}) {
    for (const MegatronNaming naming : {MegatronNaming::kLocal, MegatronNaming::kTransformerEngine}) {
      const auto specs = layout::parameter_specs(model);
      std::map<std::pair<std::string, core::Dims>, std::string> places;
      for (const layout::ParameterSpec& spec : specs) {
        const DistKey key = dist_key(spec, model, naming);
        EXPECT_TRUE(places.emplace(std::pair(key.key, key.at), spec.key).second) << key.key;
        const StoredDistKey stored = parse_dist_key(key.key);
        ASSERT_EQ(stored.axes(), key.at.size()) << key.key;
        const std::string canonical =
            stored.canonical(stored.stacks_layers ? key.at[0] : 0, stored.stacks_experts ? key.at.back() : 0);
        EXPECT_TRUE(canonical == spec.key || key_of_model_with_experts(canonical) == spec.key)
            << key.key << " is " << canonical << ", not " << spec.key;
      }
    }
  }
}

TEST(DistKeysTest, SingleExpertsAndHalvesAreParsed) {
  const StoredDistKey stored = parse_dist_key("decoder.layers.4.mlp.experts.experts.17.linear_fc1.weight_v");
  EXPECT_EQ(stored.axes(), 0u);
  EXPECT_EQ(stored.half, 1);
  EXPECT_EQ(stored.canonical(0, 0), "decoder.layers.4.mlp.experts.local_experts.17.linear_fc1.weight");
  EXPECT_EQ(parse_dist_key("decoder.layers.4.mlp.linear_fc1.weight_w").half, 0);
  EXPECT_EQ(parse_dist_key("decoder.layers.4.self_attention.something_w").half, -1);
  for (const char* key : {"", "decoder.layers.", "mlp.experts.experts.", "mlp.experts.experts.1",
                          "mlp.experts.experts.99999999999999999999.linear_fc1.weight"}) {
    const StoredDistKey none = parse_dist_key(key);
    EXPECT_EQ(none.expert, -1) << key;
    (void)none.canonical(0, 0);
  }
}

}  // namespace
}  // namespace ms::convert
