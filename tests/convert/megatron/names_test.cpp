#include "convert/megatron/names.h"

#include <gtest/gtest.h>

namespace ms::convert {
namespace {

TEST(MegatronNamesTest, ThreeNamingsParseToOneName) {
  const struct {
    const char *name, *key;  // of the layer with global index 7
  } cases[] = {
      {"embedding.word_embeddings.weight", "embedding.word_embeddings.weight"},
      {"decoder.layers.3.input_layernorm.weight", "decoder.layers.7.self_attention.linear_qkv.layer_norm_weight"},
      {"decoder.layers.3.self_attention.linear_qkv.layer_norm_weight",
       "decoder.layers.7.self_attention.linear_qkv.layer_norm_weight"},
      {"decoder.layers.3.pre_mlp_layernorm.bias", "decoder.layers.7.mlp.linear_fc1.layer_norm_bias"},
      {"decoder.layers.3.post_attn_norm.weight", "decoder.layers.7.post_self_attn_layernorm.weight"},
      {"decoder.layers.3.mlp.linear_fc1.weight", "decoder.layers.7.mlp.linear_fc1.weight"},
      {"language_model.embedding.word_embeddings.weight", "embedding.word_embeddings.weight"},
      {"language_model.embedding.position_embeddings.weight", "embedding.position_embeddings.weight"},
      {"language_model.encoder.layers.3.input_norm.weight",
       "decoder.layers.7.self_attention.linear_qkv.layer_norm_weight"},
      {"language_model.encoder.layers.3.self_attention.query_key_value.bias",
       "decoder.layers.7.self_attention.linear_qkv.bias"},
      {"language_model.transformer.layers.3.attention.query_key_value.weight",
       "decoder.layers.7.self_attention.linear_qkv.weight"},
      {"language_model.transformer.layers.3.attention.dense.weight",
       "decoder.layers.7.self_attention.linear_proj.weight"},
      {"language_model.encoder.layers.3.post_attention_norm.weight",
       "decoder.layers.7.mlp.linear_fc1.layer_norm_weight"},
      {"language_model.transformer.layers.3.post_attention_layernorm.bias",
       "decoder.layers.7.mlp.linear_fc1.layer_norm_bias"},
      {"language_model.encoder.layers.3.mlp.dense_h_to_4h.weight", "decoder.layers.7.mlp.linear_fc1.weight"},
      {"language_model.encoder.layers.3.mlp.dense_4h_to_h.bias", "decoder.layers.7.mlp.linear_fc2.bias"},
      {"language_model.encoder.final_norm.weight", "decoder.final_layernorm.weight"},
      {"language_model.transformer.final_layernorm.bias", "decoder.final_layernorm.bias"},
      {"language_model.output_layer.weight", "output_layer.weight"},
      {"word_embeddings_for_head.weight", "output_layer.weight"},
  };
  for (const auto& [name, key] : cases) {
    const MegatronName parsed = parse_megatron_name(name);
    EXPECT_EQ(parsed.key(7), key) << name;
    EXPECT_EQ(parsed.layer, std::string_view(name).find(".3.") == std::string_view::npos ? -1 : 3) << name;
  }
}

TEST(MegatronNamesTest, WrittenNamesParseBack) {
  for (const char* name : {"input_layernorm.weight", "pre_mlp_layernorm.bias", "post_attn_norm.weight",
                           "self_attention.linear_qkv.bias", "post_mlp_layernorm.weight"}) {
    const MegatronName canonical = parse_megatron_name("decoder.layers.3." + std::string(name));
    EXPECT_EQ(megatron_name(canonical, {MegatronNaming::kLocal}).rest, name);
    const MegatronName te = megatron_name(canonical, {MegatronNaming::kTransformerEngine});
    EXPECT_EQ(parse_megatron_name(te.key(3)).rest, canonical.rest);
    EXPECT_EQ(te.rest.find("input_layernorm"), std::string::npos);
  }
  const MegatronName outside = parse_megatron_name("language_model.output_layer.weight");
  EXPECT_EQ(megatron_name(outside, {MegatronNaming::kLocal}).key(0), "output_layer.weight");
}

TEST(MegatronNamesTest, UnknownNamesAreUnchanged) {
  for (const char* name : {"", "decoder.layers.", "decoder.layers.x.y", "decoder.layers.-1.y", "decoder.layers.3",
                           "decoder.layers.99999999999999999999.y", "vision_model.conv.weight"}) {
    const MegatronName parsed = parse_megatron_name(name);
    EXPECT_EQ(parsed.layer, -1) << name;
    EXPECT_EQ(parsed.rest, name);
  }
}

TEST(MegatronNamesTest, BuffersAreRecognised) {
  EXPECT_TRUE(is_megatron_buffer("decoder.layers.0.self_attention.linear_qkv._extra_state"));
  EXPECT_TRUE(is_megatron_buffer("rotary_pos_emb.inv_freq"));
  EXPECT_FALSE(is_megatron_buffer("decoder.layers.0.self_attention.linear_qkv.weight"));
}

}  // namespace
}  // namespace ms::convert
