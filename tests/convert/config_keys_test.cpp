#include "convert/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

core::TransformerConfig model() {
  core::TransformerConfig model;
  model.num_layers = 2;
  model.num_attention_heads = 4;
  model.kv_channels = 16;
  model.norm_epsilon = 1e-6;
  model.position_embedding_type = "rope";
  model.swiglu = true;
  model.add_bias_linear = false;
  return model;
}

TEST(ConfigKeys, TypeErrorsNameTheKey) {
  const json object = {{"size", 3}, {"number", 0.5}, {"flag", true}, {"text", "x"}, {"none", nullptr}};
  const ConfigKeys keys(object, "config.json");
  EXPECT_EQ(keys.size("size"), 3);
  EXPECT_EQ(keys.size("none", 7), 7);
  EXPECT_EQ(keys.number("number", 1), 0.5);
  EXPECT_TRUE(keys.flag("flag", false));
  EXPECT_EQ(keys.text("text", ""), "x");
  EXPECT_TRUE(keys.has_null("none"));
  EXPECT_EQ(keys.find("none"), nullptr);
  for (const auto& [key, wrong] :
       std::vector<std::pair<const char*, std::function<void()>>>{{"text", [&] { keys.size("text"); }},
                                                                  {"size", [&] { keys.size("size", {}, 2); }},
                                                                  {"absent", [&] { keys.size("absent"); }},
                                                                  {"flag", [&] { keys.number("flag", 1); }},
                                                                  {"number", [&] { keys.flag("number", true); }},
                                                                  {"size", [&] { keys.text("size", ""); }}}) {
    const test::Thrown thrown = test::thrown_by(wrong);
    EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData);
    EXPECT_THAT(thrown.text, HasSubstr(core::cat("config.json: ", key, " ")));
  }
}

TEST(ConfigKeys, UnusedSkipsReadHarmlessAndNullKeys) {
  const json object = {{"read", 1}, {"use_cache", true},   {"none", nullptr},    {"colour", "blue"},
                       {"odd", 1},  {"summary_type", "x"}, {"architectures", {}}};
  const ConfigKeys keys(object, "config.json");
  keys.size("read");
  constexpr std::string_view kOwn[] = {"colour"};
  EXPECT_THAT(keys.unused(model(), {}), ElementsAre("colour", "odd"));
  EXPECT_THAT(keys.unused(model(), kOwn), ElementsAre("odd"));
}

TEST(ConfigKeys, UnreadKeysThatChangeTheModelMustAgreeWithIt) {
  const std::tuple<const char*, json, json> cases[] = {{"embedding_multiplier", 1, 12},
                                                       {"attention_multiplier", 0.25, 0.2},
                                                       {"query_pre_attn_scalar", 16, 24},
                                                       {"rms_norm_eps", 1e-6, 1e-5},
                                                       {"hidden_act", "silu", "gelu"},
                                                       {"head_dim", 16, 8},
                                                       {"num_key_value_heads", 4, 2},
                                                       {"no_rope_layers", {1, 1, 1}, {1, 0}},
                                                       {"rotary_pct", 1.0, 0.5},
                                                       {"rope_theta", 10000, 5},
                                                       {"rope_interleaved", false, true},
                                                       {"bias", false, true},
                                                       {"qkv_bias", false, true},
                                                       {"use_qk_norm", false, true},
                                                       {"attn_logit_softcapping", 0, 50.0},
                                                       {"kv_lora_rank", 0, 512},
                                                       {"scale_attn_weights", true, false},
                                                       {"is_causal", true, false},
                                                       {"use_parallel_residual", false, true},
                                                       {"logits_soft_cap", 0, json::object()}};
  for (const auto& [key, same, other] : cases) {
    const json good = {{key, same}}, bad = {{key, other}};
    EXPECT_THAT(ConfigKeys(good, "x").unused(model(), {}), IsEmpty()) << key;
    const test::Thrown thrown = test::thrown_by([&] { ConfigKeys(bad, "x").unused(model(), {}); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << key;
    EXPECT_THAT(thrown.text, HasSubstr(core::cat(key, " is "))) << thrown.text;
  }
  // Qwen's window, which use_sliding_window turns off; an interval next to the list made from it.
  const json window = {{"sliding_window", 4096}, {"use_sliding_window", false}};
  EXPECT_THAT(ConfigKeys(window, "x").unused(model(), {}), IsEmpty());
  const json layers = {{"no_rope_layers", {1, 1}}, {"no_rope_layer_interval", 4}};
  EXPECT_THAT(ConfigKeys(layers, "x").unused(model(), {}), IsEmpty());
}

TEST(ConfigKeys, ActivationAliasesMapToOneName) {
  EXPECT_EQ(activation_of("swish"), "silu");
  EXPECT_EQ(activation_of("gelu_pytorch_tanh"), "gelu_tanh");
  EXPECT_EQ(activation_of("gelu"), "gelu");
  EXPECT_EQ(activation_of("relu2"), "relu2");
  EXPECT_EQ(activation_of("relu"), "");
}

}  // namespace
}  // namespace ms::convert
