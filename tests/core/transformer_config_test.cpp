#include "core/transformer_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/thrown.h"

namespace ms::core {
namespace {

// A complete model with experts.
TransformerConfig moe_model() {
  TransformerConfig model;
  model.num_layers = 6;
  model.hidden_size = 16;
  model.ffn_hidden_size = 24;
  model.num_attention_heads = 4;
  model.vocab_size = 17;
  model.max_position_embeddings = 8;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.num_experts = 8;
  model.moe_ffn_hidden_size = 12;
  model.moe_layer_freq = "([0]*2+[1]*4)";
  return model;
}

TransformerConfig resolved(TransformerConfig model) {
  model.resolve(8);
  return model;
}

TEST(TransformerConfig, MoeLayerFreqHasOneCanonicalSpelling) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"},
      {"2", "2"},
      {"9", "6"},  // only the first layer
      {"([0]*2+[1]*4)", "([0]*2+[1]*4)"},
      {"[0,0,1,1,1,1]", "([0]*2+[1]*4)"},
      {"[0] + [0] + ([1]*2)*2", "([0]*2+[1]*4)"},
      {"[1]*6", "1"},
      {"([1,0]*3)", "2"},
      {"[0,1]*3", "([0]*1+[1]*1+[0]*1+[1]*1+[0]*1+[1]*1)"},
  };
  for (const auto& [text, canonical] : cases) {
    TransformerConfig model = moe_model();
    model.moe_layer_freq = text;
    const TransformerConfig once = resolved(model);
    EXPECT_EQ(once.moe_layer_freq, canonical) << text;
    EXPECT_EQ(resolved(once), once) << text;
    EXPECT_EQ(once.layers_with_experts(), model.layers_with_experts()) << text;
    EXPECT_NO_THROW(once.validate());
  }
  for (const char* wrong : {"", "0", "-1", "x", "[1]*5", "[1]*7", "[2]*6", "([1]*6", "[1]*6)",
                            "[1]*99999999999999999999", "[1,]*3", "[1]*6+", "((((((((((((((((((((((((([1]*6"}) {
    TransformerConfig model = moe_model();
    model.moe_layer_freq = wrong;
    EXPECT_TRUE(model.layers_with_experts().empty()) << wrong;
    const test::Thrown thrown = test::thrown_by([&] { resolved(model).validate(); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument) << wrong;
    EXPECT_NE(thrown.text.find("--moe-layer-freq"), std::string::npos) << thrown.text;
  }
}

// int((4 * hidden * 2 / 3) / 64) * 64 in Python, for the widths of many models and for odd widths.
TEST(TransformerConfig, DefaultMlpWidthIsMegatrons) {
  const std::pair<int64_t, int64_t> swiglu[] = {{512, 1344},  {768, 2048},   {1000, 2624},  {1024, 2688},  {1536, 4096},
                                                {2048, 5440}, {4096, 10880}, {5120, 13632}, {8192, 21824}, {24, 64}};
  for (const auto& [hidden, width] : swiglu) {
    TransformerConfig model;
    model.hidden_size = hidden;
    EXPECT_EQ(resolved(model).ffn_hidden_size, 4 * hidden);
    model.geglu = true;
    EXPECT_EQ(resolved(model).ffn_hidden_size, 4 * hidden);
    model.geglu = false;
    model.squared_relu = true;
    EXPECT_EQ(resolved(model).ffn_hidden_size, 4 * hidden);
    model.squared_relu = false;
    model.swiglu = true;
    EXPECT_EQ(resolved(model).ffn_hidden_size, width) << hidden;
    model.ffn_hidden_size = 100;
    EXPECT_EQ(resolved(model).ffn_hidden_size, 100);
  }
}

TEST(TransformerConfig, IndivisibleHiddenSizeRequiresKvChannels) {
  TransformerConfig model = moe_model();
  model.hidden_size = 64;
  model.num_attention_heads = 5;
  const test::Thrown thrown = test::thrown_by([&] { resolved(model).validate(); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(thrown.text.rfind("--hidden-size 64 is not a multiple of --num-attention-heads 5", 0), 0u) << thrown.text;
  model.kv_channels = 12;
  EXPECT_NO_THROW(resolved(model).validate());
}

TransformerConfig dense_model() {
  TransformerConfig model = moe_model();
  model.num_experts = 0;
  model.moe_layer_freq = "1";
  model.position_embedding_type = "rope";
  return model;
}

TEST(TransformerConfig, NoRopeFreqHasOneCanonicalSpelling) {
  const std::pair<const char*, const char*> cases[] = {{"0", "0"},
                                                       {"3", "3"},
                                                       {"9", "0"},
                                                       {"([0]*2+[1])*2", "3"},
                                                       {"[0]*6", "0"},
                                                       {"[1]*6", "1"},
                                                       {"[0]*4+[1]*2", "([0]*4+[1]*2)"}};
  for (const auto& [text, canonical] : cases) {
    TransformerConfig model = dense_model();
    model.no_rope_freq = text;
    const TransformerConfig once = resolved(model);
    EXPECT_EQ(once.no_rope_freq, canonical) << text;
    EXPECT_EQ(once.layers_with_rope(), model.layers_with_rope()) << text;
    EXPECT_NO_THROW(once.validate());
  }
  TransformerConfig model = dense_model();
  model.no_rope_freq = "3";
  EXPECT_EQ(model.layers_with_rope(), (std::vector<bool>{true, true, false, true, true, false}));
  model.position_embedding_type = "learned_absolute";
  EXPECT_EQ(resolved(model).no_rope_freq, "0");
}

TEST(TransformerConfig, WindowAttnSkipFreqHasOneCanonicalSpelling) {
  TransformerConfig model = dense_model();
  model.sliding_window = 7;
  EXPECT_EQ(model.windows_of_layers(), std::vector<int64_t>(6, 7));
  model.window_attn_skip_freq = "3";
  EXPECT_EQ(model.windows_of_layers(), (std::vector<int64_t>{7, 7, 0, 7, 7, 0}));
  TransformerConfig list = model;
  list.window_attn_skip_freq = "([1]*2+[0])*2";
  EXPECT_EQ(resolved(list), resolved(model));
  list.window_attn_skip_freq = "[1]*6";
  EXPECT_EQ(resolved(list).window_attn_skip_freq, "0");
  list.window_attn_skip_freq = "[0]*6";
  EXPECT_EQ(resolved(list).sliding_window, 0);
  list.window_attn_skip_freq = "[0]+[1]*5";
  EXPECT_EQ(resolved(list).window_of_layer(0), 0);
  EXPECT_EQ(resolved(list).window_of_layer(1), 7);
}

TEST(TransformerConfig, AnOutputGateHasAsManyRowsAsTheQueries) {
  TransformerConfig model = resolved(dense_model());
  const int64_t rows = model.qkv_rows(), parameters = model.num_parameters(1);
  model.attention_output_gate = true;
  const int64_t gates = model.num_attention_heads * model.kv_channels;
  EXPECT_EQ(model.qkv_rows(), rows + gates);
  const int64_t of_layer = gates * (model.hidden_size + (model.has_qkv_bias() ? 1 : 0));
  EXPECT_EQ(model.num_parameters(1), parameters + model.num_layers * of_layer);
  EXPECT_NO_THROW(model.validate());
  model.multi_latent_attention = true;
  model.kv_lora_rank = model.qk_head_dim = model.qk_pos_emb_head_dim = model.v_head_dim = 4;
  const test::Thrown thrown = test::thrown_by([&] { resolved(model).validate(); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_NE(thrown.text.find("--multi-latent-attention excludes --attention-output-gate"), std::string::npos)
      << thrown.text;
}

TEST(TransformerConfig, StructureErrorsNameTheFlags) {
  struct Case {
    const char* flag;
    void (*break_it)(TransformerConfig&);
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const Case cases[] = {
      {"--no-rope-freq", [](TransformerConfig& m) { m.no_rope_freq = "[1]*5"; }},
      {"--no-rope-freq", [](TransformerConfig& m) { m.no_rope_freq = "-1"; }},
      {"--window-attn-skip-freq", [](TransformerConfig& m) { m.window_attn_skip_freq = "x"; }},
      {"--no-pre-norm", [](TransformerConfig& m) { m.pre_norm = false; }},
      {"--residual-multiplier", [](TransformerConfig& m) { m.residual_multiplier = 0; }},
      {"--logits-scaling", [](TransformerConfig& m) { m.logits_scaling = -1; }},
      {"--softmax-scale", [](TransformerConfig& m) { m.softmax_scale = -1; }},
      {"--parallel-residual", [](TransformerConfig& m) { m.parallel_residual = m.post_norm = true; },
       ErrorCode::kUnsupported},
  };
  EXPECT_NO_THROW(resolved(dense_model()).validate());
  for (const Case& each : cases) {
    TransformerConfig model = dense_model();
    each.break_it(model);
    const test::Thrown thrown = test::thrown_by([&] { resolved(model).validate(); });
    EXPECT_EQ(thrown.code, each.code) << each.flag;
    EXPECT_NE(thrown.text.find(each.flag), std::string::npos) << thrown.text;
  }
}

TEST(TransformerConfig, InapplicableFieldsGetACanonicalValue) {
  TransformerConfig dense = moe_model();
  dense.num_experts = 0;
  dense.moe_router_topk = 7;
  dense.moe_router_pre_softmax = true;
  dense.kv_lora_rank = 32;  // Megatron's default for a model without latent attention
  TransformerConfig plain = dense;
  plain.moe_router_topk = 2;
  plain.moe_router_pre_softmax = false;
  plain.kv_lora_rank = 0;
  EXPECT_EQ(resolved(dense), resolved(plain));
  TransformerConfig all = moe_model();
  all.moe_layer_freq = "1";
  EXPECT_EQ(resolved(all).ffn_hidden_size, 12) << "no layer has an MLP of the other size";
  all.moe_ffn_hidden_size = 0;
  EXPECT_EQ(resolved(all).moe_ffn_hidden_size, 24);
}

std::string freq_of(int layers) {
  std::string list = "[0";
  for (int layer = 1; layer < layers; ++layer) list += ",1";
  return list + "]";
}

TEST(TransformerConfig, ExpertAndLatentAttentionErrorsNameTheFlags) {
  struct Case {
    const char* flag;
    void (*break_it)(TransformerConfig&);
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const Case cases[] = {
      {"--num-experts", [](TransformerConfig& m) { m.num_experts = -1; }},
      {"--num-experts", [](TransformerConfig& m) { m.num_experts = 1 << 30; }},
      {"--num-layers is 1000000: at most 65536", [](TransformerConfig& m) { m.num_layers = 1000000; }},
      {"--moe-layer-freq \"[0,1,1,1,", [](TransformerConfig& m) { m.moe_layer_freq = freq_of(1000); }},
      {"1...\": expected", [](TransformerConfig& m) { m.moe_layer_freq = freq_of(1000); }},
      {"--norm-epsilon nan", [](TransformerConfig& m) { m.norm_epsilon = std::nan(""); }},
      {"--norm-epsilon inf", [](TransformerConfig& m) { m.norm_epsilon = INFINITY; }},
      {"--num-layers",
       [](TransformerConfig& m) { m.num_layers = 1 << 10, m.num_experts = 1 << 10, m.moe_layer_freq = "1"; }},
      {"--num-experts", [](TransformerConfig& m) { m.add_bias_linear = true; }, ErrorCode::kUnsupported},
      {"--add-dense-bias", [](TransformerConfig& m) { m.add_dense_bias = true; }, ErrorCode::kUnsupported},
      {"--add-mlp-bias", [](TransformerConfig& m) { m.add_mlp_bias = true; }, ErrorCode::kUnsupported},
      {"--moe-router-topk", [](TransformerConfig& m) { m.moe_router_topk = 9; }},
      {"--moe-ffn-hidden-size", [](TransformerConfig& m) { m.moe_ffn_hidden_size = -1; }},
      {"--moe-router-score-function", [](TransformerConfig& m) { m.moe_router_score_function = "tanh"; }},
      {"--moe-router-num-groups", [](TransformerConfig& m) { m.moe_router_num_groups = 3; }},
      {"--moe-router-topk-scaling-factor", [](TransformerConfig& m) { m.moe_router_topk_scaling_factor = 0; }},
      {"--mtp-num-layers", [](TransformerConfig& m) { m.mtp_num_layers = 7; }},
      {"--kv-lora-rank", [](TransformerConfig& m) { m.multi_latent_attention = true; }},
      {"--qk-pos-emb-head-dim 3 is odd",
       [](TransformerConfig& m) {
         m.multi_latent_attention = true;
         m.kv_lora_rank = m.qk_head_dim = m.v_head_dim = 5;
         m.qk_pos_emb_head_dim = 3;
         m.position_embedding_type = "rope";
       }},
  };
  EXPECT_NO_THROW(resolved(moe_model()).validate());
  for (const Case& each : cases) {
    TransformerConfig model = moe_model();
    each.break_it(model);
    const test::Thrown thrown = test::thrown_by([&] { resolved(model).validate(); });
    EXPECT_EQ(thrown.code, each.code) << each.flag;
    EXPECT_NE(thrown.text.find(each.flag), std::string::npos) << thrown.text;
  }
}

}  // namespace
}  // namespace ms::core
