#include "convert/huggingface_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json llama() {
  return {{"model_type", "llama"},    {"hidden_size", 64}, {"intermediate_size", 96},       {"num_hidden_layers", 3},
          {"num_attention_heads", 8}, {"vocab_size", 127}, {"max_position_embeddings", 512}};
}

// llama() with one key added or changed.
json with(const char* key, json value) {
  json config = llama();
  config[key] = std::move(value);
  return config;
}

std::string error_of(const json& config, core::ErrorCode code) {
  try {
    parse_hf_config(config, "config.json");
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(HuggingFaceConfigTest, AbsentKeysHaveDefaults) {
  const HfConfig config = parse_hf_config(llama(), "x");
  const core::TransformerConfig& model = config.model;
  EXPECT_EQ(config.family->architecture, "LlamaForCausalLM");
  EXPECT_EQ(model.kv_channels, 8);
  EXPECT_EQ(model.query_groups(), 8);
  EXPECT_EQ(model.ffn_hidden_size, 96);
  EXPECT_EQ(model.rotary_base, 10000.0);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_TRUE(model.untie_embeddings_and_output_weights);
  EXPECT_FALSE(model.add_qkv_bias);
  EXPECT_FALSE(config.dtype.has_value());
  EXPECT_NO_THROW(model.validate());
}

TEST(HuggingFaceConfigTest, NullCountsAsAbsent) {
  json config = with("head_dim", nullptr);
  config["num_key_value_heads"] = nullptr;
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(parse_hf_config(config, "x").model, parse_hf_config(llama(), "x").model);
}

TEST(HuggingFaceConfigTest, GroupsAndHeadSizeAreRead) {
  json config = with("num_key_value_heads", 2);
  config["head_dim"] = 16;
  const core::TransformerConfig model = parse_hf_config(config, "x").model;
  EXPECT_TRUE(model.group_query_attention);
  EXPECT_EQ(model.query_groups(), 2);
  EXPECT_EQ(model.qkv_rows(), (8 + 2 * 2) * 16);
}

TEST(HuggingFaceConfigTest, RopeThetaIsReadFromBothPlaces) {
  EXPECT_EQ(parse_hf_config(with("rope_theta", 5e5), "x").model.rotary_base, 5e5);
  EXPECT_EQ(
      parse_hf_config(with("rope_parameters", {{"rope_theta", 7e5}, {"rope_type", "default"}}), "x").model.rotary_base,
      7e5);
}

TEST(HuggingFaceConfigTest, DtypeIsReadUnderBothNames) {
  EXPECT_EQ(parse_hf_config(with("torch_dtype", "bfloat16"), "x").dtype, core::DType::kBf16);
  EXPECT_EQ(parse_hf_config(with("dtype", "float16"), "x").dtype, core::DType::kFp16);
  EXPECT_EQ(parse_hf_config(with("dtype", "float32"), "x").dtype, core::DType::kFp32);
}

TEST(HuggingFaceConfigTest, TiedEmbeddingsAreRead) {
  EXPECT_FALSE(parse_hf_config(with("tie_word_embeddings", true), "x").model.untie_embeddings_and_output_weights);
}

TEST(HuggingFaceConfigTest, FamiliesImplyTheirStructure) {
  const core::TransformerConfig qwen2 = parse_hf_config(with("model_type", "qwen2"), "x").model;
  EXPECT_TRUE(qwen2.add_qkv_bias);
  EXPECT_FALSE(qwen2.qk_layernorm);
  const core::TransformerConfig qwen3 = parse_hf_config(with("model_type", "qwen3"), "x").model;
  EXPECT_FALSE(qwen3.add_qkv_bias);
  EXPECT_TRUE(qwen3.qk_layernorm);
  EXPECT_EQ(qwen3.kv_channels, 128);
}

TEST(HuggingFaceConfigTest, RopeScalingIsReadUnderOldAndNewKeys) {
  const core::TransformerConfig linear =
      parse_hf_config(with("rope_scaling", {{"type", "linear"}, {"factor", 2.5}}), "x").model;
  EXPECT_EQ(linear.rope_scaling_type, "linear");
  EXPECT_EQ(linear.rope_scaling_factor, 2.5);
  const core::TransformerConfig llama3 =
      parse_hf_config(with("rope_parameters", {{"rope_type", "llama3"},
                                               {"rope_theta", 5e5},
                                               {"factor", 8.0},
                                               {"low_freq_factor", 2.0},
                                               {"high_freq_factor", 5.0},
                                               {"original_max_position_embeddings", 128}}),
                      "x")
          .model;
  EXPECT_EQ(llama3.rope_scaling_type, "llama3");
  EXPECT_EQ(llama3.rotary_base, 5e5);
  EXPECT_EQ(llama3.rope_scaling_low_freq_factor, 2);
  EXPECT_EQ(llama3.rope_scaling_high_freq_factor, 5);
  EXPECT_EQ(llama3.rope_scaling_original_max_position_embeddings, 128);
  EXPECT_NO_THROW(llama3.validate());
  const json written = make_hf_config(llama3, json(), core::DType::kFp32);
  EXPECT_EQ(parse_hf_config(written, "x").model, llama3);
}

TEST(HuggingFaceConfigTest, LongropeHasTwoListsAndTwoPlacesForTheOriginalLength) {
  const json rope = {{"type", "longrope"},
                     {"short_factor", {1, 1.0299999713897705, 1.05, 1.1}},
                     {"long_factor", {1.08, 2.5, 12.25, 64}},
                     {"original_max_position_embeddings", 128}};
  const core::TransformerConfig model = parse_hf_config(with("rope_scaling", rope), "x").model;
  EXPECT_EQ(model.rope_scaling_type, "longrope");
  EXPECT_EQ(model.rope_scaling_short_factor, "1,1.0299999713897705,1.05,1.1");
  EXPECT_EQ(model.rope_factors(true), (std::vector<double>{1.08, 2.5, 12.25, 64}));
  EXPECT_EQ(model.rope_scaling_original_max_position_embeddings, 128);
  EXPECT_EQ(model.rope_scaling_factor, 4) << "512 / 128";
  EXPECT_EQ(model.rope_scaling_attention_factor, 0);
  EXPECT_NO_THROW(model.validate());
  const json made = make_hf_config(model, json(), core::DType::kFp32);
  EXPECT_EQ(made.at("rope_scaling").at("short_factor"), rope.at("short_factor"));
  EXPECT_EQ(parse_hf_config(made, "x").model, model);

  json other = with("rope_scaling", rope);
  other["original_max_position_embeddings"] = 256;  // comes first
  EXPECT_EQ(parse_hf_config(other, "x").model.rope_scaling_factor, 2);
  other["rope_scaling"]["factor"] = 1.0;
  EXPECT_EQ(parse_hf_config(other, "x").model.rope_scaling_attention_factor, 1) << "what transformers makes of it";
  other["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(parse_hf_config(other, "x").model.rope_scaling_attention_factor, 1.5);

  json phi = with("model_type", "phi3");
  phi["max_position_embeddings"] = 16384;
  phi["rope_scaling"] = {{"type", "su"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4}}};
  const core::TransformerConfig of_phi = parse_hf_config(phi, "x").model;
  EXPECT_EQ(of_phi.rope_scaling_type, "longrope");
  EXPECT_EQ(of_phi.rope_scaling_factor, 4) << "Phi-3's original length is 4096";

  for (const json& list : {json{1, 2, 3}, json{1, 2, 3, "4"}, json{1, 2, 3, 0}, json{1, 2, 3, -4}, json(3), json()}) {
    json wrong = with("rope_scaling", rope);
    wrong["rope_scaling"]["long_factor"] = list;
    EXPECT_THAT(error_of(wrong, core::ErrorCode::kCorruptData), HasSubstr("long_factor of longrope")) << list;
  }
}

TEST(HuggingFaceConfigTest, WindowsAndNullsFollowTheFamily) {
  EXPECT_EQ(parse_hf_config(with("model_type", "mistral"), "x").model.sliding_window, 4096);
  json config = with("model_type", "mistral");
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parse_hf_config(config, "x").model.sliding_window, 0);
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(error_of(config, core::ErrorCode::kUnsupported), HasSubstr("layer_types"));

  json gemma = with("model_type", "gemma2");
  gemma["sliding_window"] = 16;
  const core::TransformerConfig model = parse_hf_config(gemma, "x").model;
  EXPECT_EQ(model.window_of_layer(0), 16);
  EXPECT_EQ(model.window_of_layer(1), 0);
  EXPECT_EQ(model.kv_channels, 256);
  EXPECT_FALSE(model.untie_embeddings_and_output_weights);
  gemma["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parse_hf_config(gemma, "x").model, model);
}

// A model of mstrain has no config.json: a family that can express it is found, and its config.json gives the same
// model.
TEST(HuggingFaceConfigTest, EveryFamilyExpressesItsModels) {
  for (const char* name :
       {"hf_llama_tiny",       "hf_llama3_tiny",        "hf_yarn_tiny",         "hf_mistral_tiny",
        "hf_qwen2_tiny",       "hf_qwen3_tiny",         "hf_gemma2_tiny",       "hf_phi3_tiny",
        "hf_glm_tiny",         "hf_glm4_tiny",          "hf_gpt2_tiny",         "hf_mixtral_tiny",
        "hf_qwen2_moe_tiny",   "hf_qwen3_moe_tiny",     "hf_glm4_moe_tiny",     "hf_deepseek_v2_tiny",
        "hf_deepseek_v3_tiny", "hf_olmo2_tiny",         "hf_granite_tiny",      "hf_smollm3_tiny",
        "hf_ernie4_5_tiny",    "hf_gpt_neox_tiny",      "hf_starcoder2_tiny",   "hf_gemma3_text_tiny",
        "hf_internlm2_tiny",   "hf_nemotron_tiny",      "hf_llama_biased_tiny", "hf_qwen3_biased_tiny",
        "hf_longrope_tiny",    "hf_phi3_longrope_tiny", "hf_olmoe_tiny"}) {
    const HfConfig genuine = read_hf_config(core::cat(MS_TEST_DATA, "/", name, "/config.json"));
    const json made = make_hf_config(genuine.model, json(), core::DType::kFp32);
    EXPECT_TRUE(same_model(parse_hf_config(made, "made").model, genuine.model)) << name << "\n" << made.dump(1);
  }
  core::TransformerConfig scripted = parse_hf_config(llama(), "x").model;
  scripted.bias_gelu_fusion = false;  // as in Llama scripts; has no effect
  scripted.resolve(64);
  EXPECT_EQ(make_hf_config(scripted, json(), core::DType::kFp32).at("model_type"), "llama");
  core::TransformerConfig nobody = parse_hf_config(llama(), "x").model;
  nobody.post_norm = true;
  EXPECT_THROW(make_hf_config(nobody, json(), core::DType::kFp32), core::Error);
}

TEST(HuggingFaceConfigTest, UnsupportedKeysAreRefusedByName) {
  using core::ErrorCode;
  const std::vector<std::pair<const char*, json>> cases = {
      {"model_type", "mamba"},
      {"hidden_act", "gelu"},
      {"rope_scaling", {{"type", "axial"}, {"factor", 2.0}}},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"short_mscale", 1.2}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}, {"beta_fast", 32.0}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}, {"truncate", false}}},
      {"rope_scaling", {{"factor", 8.0}}},
      {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}},
      {"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}},
      {"partial_rotary_factor", 0.5},
      {"use_bias", true},
      {"use_sliding_window", true},
      {"layer_types", {"full_attention", "sliding_attention"}},
      {"quantization_config", {{"bits", 4}}},
      {"dtype", "float8_e4m3fn"},
  };
  for (const auto& [key, value] : cases) {
    EXPECT_THAT(error_of(with(key, value), ErrorCode::kUnsupported), HasSubstr(key)) << key << " " << value;
  }
}

json genuine(const char* name) { return read_json(core::cat(MS_TEST_DATA, "/", name, "/config.json"), 1 << 20); }

TEST(HuggingFaceConfigTest, LayersWithoutRopeComeFromTheListOrTheInterval) {
  json config = genuine("hf_smollm3_tiny");
  EXPECT_EQ(parse_hf_config(config, "x").model.layers_with_rope(), (std::vector<bool>{true, false}));
  config["num_hidden_layers"] = 8;
  config.erase("layer_types");
  EXPECT_THAT(error_of(config, core::ErrorCode::kUnsupported), HasSubstr("no_rope_layers"));
  config.erase("no_rope_layers");
  EXPECT_EQ(parse_hf_config(config, "x").model.no_rope_freq, "4");
  config["no_rope_layer_interval"] = 3;
  EXPECT_EQ(parse_hf_config(config, "x").model.layers_with_rope(),
            (std::vector<bool>{true, true, false, true, true, false, true, true}));
}

TEST(HuggingFaceConfigTest, Gemma3HasWindowsAndRopeBasesByLayer) {
  const json config = genuine("hf_gemma3_text_tiny");
  const core::TransformerConfig model = parse_hf_config(config, "x").model;
  EXPECT_EQ(model.windows_of_layers(), (std::vector<int64_t>{5, 5, 0}));
  EXPECT_EQ(model.rotary_base, 5000);
  EXPECT_EQ(model.rotary_base_local, 100);
  EXPECT_EQ(model.rope_scaling_type, "linear");
  json old = config;  // as transformers 4 wrote it
  for (const char* key : {"layer_types", "rope_parameters", "_sliding_window_pattern"}) old.erase(key);
  old["sliding_window_pattern"] = 3;
  old["rope_theta"] = 5000;
  old["rope_local_base_freq"] = 100;
  old["rope_scaling"] = {{"factor", 8.0}, {"rope_type", "linear"}};
  EXPECT_EQ(parse_hf_config(old, "x").model, model);
  json scaled = config;
  scaled["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"rope_theta", 1.5}, {"factor", 2.0}};
  EXPECT_THAT(error_of(scaled, core::ErrorCode::kUnsupported), HasSubstr("rope_parameters"));
}

// A key that the family does not read is refused if it changes the computation, and listed if it is unknown.
TEST(HuggingFaceConfigTest, UnusedKeysAreListedOrRefused) {
  json config = with("embedding_multiplier", 1.0);
  config["my_key"] = 3;
  config["my_other_key"] = nullptr;
  config["use_cache"] = true;
  config["rms_norm_eps"] = 1e-5;
  config["layer_norm_eps"] = 1e-5;
  EXPECT_THAT(parse_hf_config(config, "x").unused_keys, ElementsAre("my_key"));
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{{"embedding_multiplier", 12.0},
                                                                            {"residual_multiplier", 0.22},
                                                                            {"logits_scaling", 8},
                                                                            {"attention_multiplier", 0.0078125},
                                                                            {"no_rope_layers", {1, 1, 0}},
                                                                            {"no_rope_layer_interval", 4},
                                                                            {"sliding_window", 4096},
                                                                            {"final_logit_softcapping", 30.0},
                                                                            {"use_parallel_residual", true},
                                                                            {"rope_interleave", true},
                                                                            {"layer_norm_eps", 1e-5},
                                                                            {"num_local_experts", 8},
                                                                            {"use_bias", true},
                                                                            {"rotary_pct", 0.25}}) {
    EXPECT_THAT(error_of(with(key, value), core::ErrorCode::kUnsupported), HasSubstr(key));
  }
  EXPECT_TRUE(parse_hf_config(with("attention_multiplier", std::sqrt(1 / 8.0)), "x").unused_keys.empty());
  EXPECT_TRUE(parse_hf_config(with("no_rope_layers", {1, 1, 1}), "x").unused_keys.empty());
}

TEST(HuggingFaceConfigTest, OddHeadSizeWithRopeIsRefused) {
  EXPECT_THAT(error_of(with("head_dim", 5), core::ErrorCode::kUnsupported), HasSubstr("head_dim"));
}

TEST(HuggingFaceConfigTest, LayersWithExpertsAreRead) {
  json config = genuine("hf_deepseek_v3_tiny");
  config["num_hidden_layers"] = 6;
  config["first_k_dense_replace"] = 3;
  EXPECT_EQ(parse_hf_config(config, "x").model.moe_layer_freq, "([0]*3+[1]*3)");
  config["first_k_dense_replace"] = 0;
  EXPECT_EQ(parse_hf_config(config, "x").model.moe_layer_freq, "1");
  config["moe_layer_freq"] = 2;
  EXPECT_EQ(parse_hf_config(config, "x").model.moe_layer_freq, "2");
  EXPECT_THROW(make_hf_config(parse_hf_config(config, "x").model, json(), core::DType::kBf16), core::Error)
      << "transformers has no such model, and no key for it";
  json qwen = genuine("hf_qwen3_moe_tiny");
  qwen["num_hidden_layers"] = 6;
  qwen["decoder_sparse_step"] = 2;
  EXPECT_EQ(parse_hf_config(qwen, "x").model.moe_layer_freq, "([0]*1+[1]*1+[0]*1+[1]*1+[0]*1+[1]*1)");
  qwen["decoder_sparse_step"] = 1;
  qwen["mlp_only_layers"] = {0, 1};
  const core::TransformerConfig model = parse_hf_config(qwen, "x").model;
  EXPECT_EQ(model.moe_layer_freq, "([0]*2+[1]*4)");
  EXPECT_EQ(parse_hf_config(make_hf_config(model, json(), core::DType::kBf16), "made").model, model);
  qwen["mlp_only_layers"] = {6};
  EXPECT_THAT(error_of(qwen, core::ErrorCode::kUnsupported), HasSubstr("mlp_only_layers"));
}

TEST(HuggingFaceConfigTest, UnsupportedRoutingIsRefused) {
  const auto refused = [](const char* name, const char* key, const json& value) {
    json config = genuine(name);
    config[key] = value;
    EXPECT_THAT(error_of(config, core::ErrorCode::kUnsupported), HasSubstr(key)) << name;
  };
  refused("hf_deepseek_v3_tiny", "scoring_func", "softmax");
  refused("hf_deepseek_v3_tiny", "topk_method", "greedy");
  refused("hf_deepseek_v3_tiny", "norm_topk_prob", false);
  refused("hf_deepseek_v3_tiny", "rope_interleave", false);
  refused("hf_deepseek_v3_tiny", "num_key_value_heads", 2);
  refused("hf_deepseek_v2_tiny", "topk_method", "noaux_tc");
  refused("hf_deepseek_v2_tiny", "mlp_bias", true);
  refused("hf_glm4_moe_tiny", "norm_topk_prob", false);
  refused("hf_qwen3_moe_tiny", "attention_bias", true);
}

// transformers drops multi-token prediction layers but keeps their key in config.json; so do we.
TEST(HuggingFaceConfigTest, AbsentMtpLayersStayInTheConfig) {
  const HfConfig config = read_hf_config(core::cat(MS_TEST_DATA, "/hf_glm4_moe_tiny"));
  ASSERT_EQ(config.model.mtp_num_layers, 1);
  core::TransformerConfig without = config.model;
  without.mtp_num_layers = 0;
  EXPECT_EQ(make_hf_config(without, config.original, core::DType::kBf16), config.original);
  EXPECT_EQ(make_hf_config(without, json(), core::DType::kBf16).at("num_nextn_predict_layers"), 0);
}

TEST(HuggingFaceConfigTest, Fp8BlockSizeIsRead) {
  json config = genuine("hf_deepseek_v3_tiny");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 64}}};
  const HfConfig parsed = parse_hf_config(config, "x");
  EXPECT_EQ(parsed.fp8_block_rows, 128);
  EXPECT_EQ(parsed.fp8_block_columns, 64);
  EXPECT_FALSE(parsed.original.contains("quantization_config")) << "the weights will be bf16";
  for (const json& wrong : {json{128}, json{0, 128}, json{128, "x"}, json()}) {
    config["quantization_config"]["weight_block_size"] = wrong;
    EXPECT_THAT(error_of(config, core::ErrorCode::kUnsupported), HasSubstr("quantization_config")) << wrong;
  }
}

TEST(HuggingFaceConfigTest, InvalidValueIsCorruptDataAndNamesTheKey) {
  using core::ErrorCode;
  const std::vector<std::pair<const char*, json>> cases = {
      {"num_hidden_layers", 0},
      {"num_hidden_layers", -1},
      {"num_hidden_layers", 2.5},
      {"num_hidden_layers", "3"},
      {"num_hidden_layers", 100000},
      {"hidden_size", int64_t{1} << 40},
      {"num_key_value_heads", 3},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", "small"},
      {"tie_word_embeddings", 1},
      {"model_type", 7},
      {"vocab_size", nullptr},
      {"rope_theta", -1},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", "two"}}},
      {"num_attention_heads", 7},
      {"max_position_embeddings", nullptr},
      {"hidden_size", nullptr},
      {"intermediate_size", nullptr},
      {"vocab_size", json::array()},
      {"model_type", nullptr},
  };
  for (const auto& [key, value] : cases) {
    std::string named = std::string(key) == "num_attention_heads" ? "head_dim" : key;
    if (value.is_object() && value.contains("factor")) named = "factor";
    EXPECT_THAT(error_of(with(key, value), ErrorCode::kCorruptData), HasSubstr(named)) << key << " " << value;
  }
  EXPECT_THAT(error_of(json::array(), ErrorCode::kCorruptData), HasSubstr("object"));
  const auto shown = [](const char* key, const json& value) {
    return error_of(with(key, value), ErrorCode::kCorruptData);
  };
  EXPECT_THAT(shown("num_hidden_layers", 100000), HasSubstr("num_hidden_layers is 100000; expected"));
  EXPECT_THAT(shown("rms_norm_eps", "small"), HasSubstr("rms_norm_eps is \"small\"; expected"));
}

TEST(HuggingFaceConfigTest, InvalidOrDeepJsonIsRefused) {
  const test::TemporaryFolder folder;
  const auto code_of = [&](const std::string& text) {
    test::write_file(folder / "config.json", text);
    try {
      read_hf_config(folder.path().string());
    } catch (const core::Error& error) {
      return error.code();
    }
    return core::ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of("{"), core::ErrorCode::kCorruptData);
  EXPECT_EQ(code_of(std::string(1'000'000, '[')), core::ErrorCode::kCorruptData);
  EXPECT_EQ(code_of(std::string(17 << 20, ' ')), core::ErrorCode::kCorruptData);
  std::filesystem::remove(folder / "config.json");
  EXPECT_THROW(read_hf_config(folder.path().string()), core::Error);
}

TEST(HuggingFaceConfigTest, GenuineConfigsAreByteIdentical) {
  for (const char* name :
       {"hf_llama_tiny",        "hf_llama_tiny_sharded", "hf_llama3_tiny",        "hf_yarn_tiny",
        "hf_mistral_tiny",      "hf_qwen2_tiny",         "hf_qwen3_tiny",         "hf_gemma2_tiny",
        "hf_phi3_tiny",         "hf_glm_tiny",           "hf_glm4_tiny",          "hf_gpt2_tiny",
        "hf_mixtral_tiny",      "hf_qwen2_moe_tiny",     "hf_qwen3_moe_tiny",     "hf_glm4_moe_tiny",
        "hf_deepseek_v2_tiny",  "hf_deepseek_v3_tiny",   "hf_olmo2_tiny",         "hf_granite_tiny",
        "hf_smollm3_tiny",      "hf_ernie4_5_tiny",      "hf_gpt_neox_tiny",      "hf_starcoder2_tiny",
        "hf_gemma3_text_tiny",  "hf_internlm2_tiny",     "hf_nemotron_tiny",      "hf_llama_biased_tiny",
        "hf_qwen3_biased_tiny", "hf_longrope_tiny",      "hf_phi3_longrope_tiny", "hf_olmoe_tiny"}) {
    const std::string path = core::cat(MS_TEST_DATA, "/", name, "/config.json");
    const HfConfig config = read_hf_config(path);
    EXPECT_NO_THROW(config.model.validate());
    EXPECT_EQ(hf_json_text(make_hf_config(config.model, config.original, *config.dtype)), test::read_file(path))
        << name;
  }
}

TEST(HuggingFaceConfigTest, GeneratedConfigsReadBackAsTheSameModel) {
  for (const Family* family : families()) {
    if (family->heads_key != "num_attention_heads") continue;    // GPT-2 has its own names: see above
    if (family->expert_layers != ExpertLayers::kNone) continue;  // they have more keys: see above
    json config = with("model_type", family->model_type);
    if (!family->groups_key.empty()) config[std::string(family->groups_key)] = 4;
    config["rms_norm_eps"] = 1e-5;
    config[std::string(family->rotary_base_key)] = 123.0;
    const core::TransformerConfig model = parse_hf_config(config, "x").model;
    const json made = make_hf_config(model, nullptr, core::DType::kBf16);
    // If several families can express a model, the first is used.
    EXPECT_EQ(made.at("architectures").at(0), family_of_model(model).architecture) << family->model_type;
    EXPECT_EQ(made.at("torch_dtype"), "bfloat16");
    EXPECT_TRUE(made.at("eos_token_id").is_null());
    EXPECT_EQ(parse_hf_config(made, "x").model, model);
  }
}

TEST(HuggingFaceConfigTest, ChangedModelOverridesTheOriginalButKeepsItsOtherKeys) {
  json original = with("eos_token_id", 9);
  original["my_key"] = "kept";
  original["rope_parameters"] = {{"rope_theta", 5.0}};
  core::TransformerConfig model = parse_hf_config(original, "x").model;
  model.num_layers = 2;
  const json made = make_hf_config(model, original, core::DType::kFp32);
  EXPECT_EQ(parse_hf_config(made, "x").model, model);
  EXPECT_EQ(made.at("eos_token_id"), 9);
  EXPECT_EQ(made.at("my_key"), "kept");
}

TEST(HuggingFaceConfigTest, BiasesOfAttentionAndMlpAreReadAndWritten) {
  const auto model_of = [](bool attention, bool mlp) {
    json config = with("attention_bias", attention);
    config["mlp_bias"] = mlp;
    return parse_hf_config(config, "x").model;
  };
  for (const bool attention : {false, true}) {
    for (const bool mlp : {false, true}) {
      const core::TransformerConfig model = model_of(attention, mlp);
      EXPECT_EQ(std::tuple(model.has_qkv_bias(), model.has_dense_bias(), model.has_mlp_bias()),
                std::tuple(attention, attention, mlp));
      EXPECT_EQ(model.add_bias_linear, attention && mlp) << "one spelling";
      const json made = make_hf_config(model, nullptr, core::DType::kFp32);
      EXPECT_EQ(made.at("model_type"), "llama");
      EXPECT_EQ(made.at("attention_bias"), attention);
      EXPECT_EQ(made.at("mlp_bias"), mlp);
      EXPECT_EQ(parse_hf_config(made, "x").model, model);
    }
  }
  core::TransformerConfig model = model_of(true, false);
  model.add_dense_bias = false;
  EXPECT_EQ(make_hf_config(model, nullptr, core::DType::kFp32).at("model_type"), "qwen2");
  model.add_dense_bias = true;
  model.add_qkv_bias = false;
  EXPECT_THROW(make_hf_config(model, nullptr, core::DType::kFp32), core::Error);
}

TEST(HuggingFaceConfigTest, ModelThatNoFamilyExpressesIsRefused) {
  core::TransformerConfig model = parse_hf_config(llama(), "x").model;
  model.add_qkv_bias = true;
  model.qk_layernorm = true;
  EXPECT_THROW(make_hf_config(model, nullptr, core::DType::kFp32), core::Error);
}

TEST(DifferencesOfTraining, AreThoseOfLatentNormsAndGroups) {
  core::TransformerConfig model;
  model.norm_epsilon = 1e-5;
  EXPECT_TRUE(differences_of_training(model).empty());
  model.multi_latent_attention = model.qk_layernorm = true;
  ASSERT_EQ(differences_of_training(model).size(), 1U);
  EXPECT_NE(differences_of_training(model)[0].find("rms_norm_eps 1e-05"), std::string::npos);
  model.norm_epsilon = 1e-6;
  EXPECT_TRUE(differences_of_training(model).empty());
  model.moe_router_num_groups = 4;
  model.moe_router_group_topk = 2;
  for (const auto& [score_function, same] : {std::pair{"softmax", 2}, std::pair{"sigmoid", 4}}) {
    model.moe_router_score_function = score_function;
    for (const int topk : {2, 4, 6}) {
      model.moe_router_topk = topk;
      EXPECT_EQ(differences_of_training(model).empty(), topk == same) << score_function << " " << topk;
    }
  }
}

}  // namespace
}  // namespace ms::convert
