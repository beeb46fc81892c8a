#include "convert/gguf/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::HasSubstr;

TEST(GgufArchitecture, TensorNamesAreTranslated) {
  const auto name = [](const char* family, const char* hf) { return gguf_tensor_name(find_family(family), hf); };
  EXPECT_EQ(name("llama", "model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(name("llama", "lm_head.weight"), "output.weight");
  EXPECT_EQ(name("llama", "model.layers.12.post_attention_layernorm.weight"), "blk.12.ffn_norm.weight");
  EXPECT_EQ(name("gemma2", "model.layers.0.post_attention_layernorm.weight"), "blk.0.post_attention_norm.weight");
  EXPECT_EQ(name("gemma2", "model.layers.0.pre_feedforward_layernorm.weight"), "blk.0.ffn_norm.weight");
  EXPECT_EQ(name("glm4", "model.layers.0.post_mlp_layernorm.weight"), "blk.0.post_ffw_norm.weight");
  EXPECT_EQ(name("qwen2", "model.layers.3.self_attn.k_proj.bias"), "blk.3.attn_k.bias");
  EXPECT_EQ(name("gpt2", "transformer.h.1.attn.c_attn.bias"), "blk.1.attn_qkv.bias");
  EXPECT_EQ(name("gpt2", "transformer.ln_f.bias"), "output_norm.bias");
  EXPECT_EQ(name("mixtral", "model.layers.3.block_sparse_moe.experts.15.w1.weight"), "blk.3.ffn_gate_exps.weight");
  EXPECT_EQ(name("qwen3_moe", "model.layers.0.mlp.experts.7.down_proj.weight"), "blk.0.ffn_down_exps.weight");
  EXPECT_EQ(name("qwen3_moe", "model.layers.0.mlp.gate.weight"), "blk.0.ffn_gate_inp.weight");
  EXPECT_EQ(name("qwen2_moe", "model.layers.0.mlp.shared_expert.up_proj.weight"), "blk.0.ffn_up_shexp.weight");
}

// Every tensor of every family that has an architecture has a unique name.
TEST(GgufArchitecture, EveryTensorHasAUniqueName) {
  for (const char* model : {"llama", "llama_biased", "mistral", "qwen2", "qwen3", "phi3", "glm4", "gpt2"}) {
    const HfConfig config = read_hf_config(core::cat(MS_TEST_DATA, "/hf_", model, "_tiny"));
    EXPECT_NE(gguf_architecture(*config.family, config.model), "");
    std::set<std::string> names;
    size_t tensors = 0;
    for_each_tensor(*config.family, config.model, [&](const MappedTensor& mapped) {
      names.insert(gguf_tensor_name(*config.family, mapped.name));
      ++tensors;
    });
    EXPECT_EQ(names.size(), tensors) << model;
  }
}

TEST(GgufArchitecture, ModelsThatLlamaCppCannotComputeAreRefused) {
  const HfConfig gemma = read_hf_config(core::cat(MS_TEST_DATA, "/hf_gemma2_tiny"));
  const test::Thrown scale = test::thrown_by([&] { gguf_architecture(*gemma.family, gemma.model); });
  EXPECT_EQ(scale.code, ErrorCode::kUnsupported);
  EXPECT_THAT(scale.text, HasSubstr("query_pre_attn_scalar 12 with heads of 8"));
  const HfConfig glm = read_hf_config(core::cat(MS_TEST_DATA, "/hf_glm_tiny"));
  EXPECT_THAT(test::thrown_by([&] { gguf_architecture(*glm.family, glm.model); }).text,
              HasSubstr("supported families: llama, mistral"));
  const HfConfig longrope = read_hf_config(core::cat(MS_TEST_DATA, "/hf_phi3_longrope_tiny"));
  EXPECT_THAT(test::thrown_by([&] { gguf_architecture(*longrope.family, longrope.model); }).text,
              HasSubstr("longrope"));
  const HfConfig biased = read_hf_config(core::cat(MS_TEST_DATA, "/hf_qwen3_biased_tiny"));
  EXPECT_THAT(test::thrown_by([&] { gguf_architecture(*biased.family, biased.model); }).text,
              HasSubstr("qwen3 with biases of o_proj or the MLP, which llama.cpp cannot compute"));
  const HfConfig dense = read_hf_config(core::cat(MS_TEST_DATA, "/hf_qwen2_moe_tiny"));
  EXPECT_THAT(test::thrown_by([&] { gguf_architecture(*dense.family, dense.model); }).text,
              HasSubstr("qwen2_moe with layers without experts, which llama.cpp cannot compute"));
  HfConfig experts = read_hf_config(core::cat(MS_TEST_DATA, "/hf_qwen3_moe_tiny"));
  EXPECT_EQ(gguf_architecture(*experts.family, experts.model), "qwen3moe");
  experts.model.moe_router_pre_softmax = true;
  EXPECT_THAT(test::thrown_by([&] { gguf_architecture(*experts.family, experts.model); }).text,
              HasSubstr("norm_topk_prob false of a qwen3_moe model"));
}

TEST(GgufArchitecture, OnlyLlama3ScalingHasRopeFactors) {
  const HfConfig scaled = read_hf_config(core::cat(MS_TEST_DATA, "/hf_llama3_tiny"));
  const std::vector<float> factors = gguf_rope_factors(scaled.model);
  ASSERT_EQ(factors.size(), 8U);
  EXPECT_EQ(factors.front(), 1.0f);  // short waves are not scaled
  EXPECT_EQ(factors.back(), 8.0f);   // long ones are scaled fully
  EXPECT_TRUE(gguf_rope_factors(read_hf_config(core::cat(MS_TEST_DATA, "/hf_llama_tiny")).model).empty());
}

}  // namespace
}  // namespace ms::convert
