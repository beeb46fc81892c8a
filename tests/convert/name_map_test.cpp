#include "convert/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/huggingface_config.h"
#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;

TEST(NameMap, NamesInMapsHavePlaceholders) {
  core::TransformerConfig model = read_hf_config(core::cat(MS_TEST_DATA, "/hf_deepseek_v3_tiny")).model;
  ASSERT_EQ(model.mtp_num_layers, 1);
  std::set<std::string> names;
  for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) names.insert(name_in_maps(spec));
  for (const char* name : {"embedding.word_embeddings.weight", "decoder.layers.{layer}.mlp.router.weight",
                           "decoder.layers.{layer}.mlp.experts.local_experts.{expert}.linear_fc1.weight",
                           "mtp.layers.{layer}.enorm.weight", "decoder.final_layernorm.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  for (const std::string& name : names) EXPECT_EQ(name.find_first_of("3456789"), std::string::npos) << name;
}

TEST(NameMap, PartsCoverAParameterOnce) {
  using enum Part;
  EXPECT_TRUE(is_whole({kQuery, kKey, kValue}, "self_attention.linear_qkv.weight"));
  EXPECT_TRUE(is_whole({kQkv}, "self_attention.linear_qkv.bias"));
  EXPECT_TRUE(is_whole({kWhole}, "self_attention.linear_qkv.weight"));
  EXPECT_TRUE(is_whole({kGate, kUp}, "mlp.linear_fc1.weight"));
  EXPECT_FALSE(is_whole({kQuery, kKey}, "self_attention.linear_qkv.weight"));
  EXPECT_FALSE(is_whole({kQuery, kKey, kValue, kQkv}, "self_attention.linear_qkv.weight"));
  EXPECT_FALSE(is_whole({kGate, kUp}, "mlp.linear_fc2.weight"));
  EXPECT_FALSE(is_whole({kQkv}, "self_attention.linear_qkv.layer_norm_weight"));
  EXPECT_FALSE(is_whole({}, "mlp.linear_fc2.weight"));
}

TEST(NameMap, MissingNamesAreAllListed) {
  core::TransformerConfig model = read_hf_config(core::cat(MS_TEST_DATA, "/hf_llama_tiny")).model;
  EXPECT_NO_THROW(check_named(find_family("llama"), model, "x"));
  model.post_norm = true;
  const test::Thrown thrown = test::thrown_by([&] { check_named(find_family("llama"), model, "x"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text,
              HasSubstr("2 parameters that this model has: decoder.layers.{layer}."
                        "post_self_attn_layernorm.weight, decoder.layers.{layer}.post_mlp_layernorm.weight"));
}

// Packed by groups as ours: one piece; q, k, v one after the other: three pieces per group.
TEST(NameMap, PackedQkvHasOnePiecePerGroupOrPart) {
  const core::TransformerConfig llama = read_hf_config(core::cat(MS_TEST_DATA, "/hf_internlm2_tiny")).model;
  const auto pieces = [&](const char* family) {
    size_t count = 0;
    for_each_tensor(find_family(family), llama, [&](const MappedTensor& mapped) {
      if (mapped.key == "decoder.layers.0.self_attention.linear_qkv.weight") count = mapped.pieces.size();
    });
    return count;
  };
  EXPECT_EQ(pieces("internlm2"), 1U);
  EXPECT_EQ(pieces("phi3"), 6U) << "of two groups";
}

TEST(NameMap, RotaryAndMaskBuffersAreIgnored) {
  EXPECT_TRUE(is_ignored_buffer("gpt_neox.layers.0.attention.masked_bias"));
  EXPECT_TRUE(is_ignored_buffer("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(is_ignored_buffer("gpt_neox.layers.0.attention.dense.bias"));
}

}  // namespace
}  // namespace ms::convert
