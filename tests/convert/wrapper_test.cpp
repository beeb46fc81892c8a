#include "convert/wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/huggingface_config.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json genuine(const char* name) { return read_json(core::cat(MS_TEST_DATA, "/", name, "/config.json"), 1 << 20); }

TEST(Wrapper, IsRecognisedByModelType) {
  for (const char* name : {"hf_qwen2_5_vl_tiny", "hf_qwen3_vl_tiny", "hf_gemma3_tiny", "hf_llava_tiny"}) {
    EXPECT_TRUE(is_wrapper(genuine(name))) << name;
  }
  EXPECT_FALSE(is_wrapper(genuine("hf_llama_tiny")));
  EXPECT_FALSE(is_wrapper(json::array()));
  EXPECT_FALSE(is_wrapper(json{{"model_type", 3}}));
}

TEST(Wrapper, TextConfigUsesTheWrappersTie) {
  const json text = text_config(genuine("hf_qwen2_5_vl_tiny"), "x");
  EXPECT_EQ(text.at("model_type"), "qwen2");
  EXPECT_EQ(text.at("hidden_size"), 16);
  EXPECT_EQ(text.at("tie_word_embeddings"), false);
  EXPECT_EQ(text_config(genuine("hf_gemma3_tiny"), "x").at("model_type"), "gemma3_text");
  // transformers 4 stores Qwen2-VL's language model keys at the top level of the file.
  json flat = genuine("hf_qwen2_5_vl_tiny");
  flat.update(flat["text_config"]);
  flat["model_type"] = "qwen2_5_vl";
  flat.erase("text_config");
  EXPECT_EQ(parse_hf_config(flat, "x").model, parse_hf_config(genuine("hf_qwen2_5_vl_tiny"), "x").model);
  // A nested config omits the defaults of its class (google/gemma-3-4b-it).
  const json short_text = {
      {"model_type", "gemma3"},
      {"text_config", {{"hidden_size", 2560}, {"intermediate_size", 10240}, {"num_hidden_layers", 34}}}};
  const core::TransformerConfig model = parse_hf_config(
                                            [&] {
                                              json config = short_text;
                                              config["text_config"]["model_type"] = "gemma3_text";
                                              return config;
                                            }(),
                                            "x")
                                            .model;
  EXPECT_EQ(model.num_attention_heads, 8);
  EXPECT_EQ(model.query_groups(), 4);
  EXPECT_EQ(model.vocab_size, 262208);
}

TEST(Wrapper, ModelAndFamilyAreTheLanguageModels) {
  const HfConfig config = parse_hf_config(genuine("hf_llava_tiny"), "x");
  EXPECT_TRUE(config.is_wrapper);
  EXPECT_EQ(config.family->model_type, "llama");
  EXPECT_EQ(config.family->prefix, "model.language_model.");
  EXPECT_EQ(config.original.at("model_type"), "llava");
  HfConfig renamed = config;
  renamed.rename([](std::string_view name) {
    return name == "language_model.model.embed_tokens.weight" || name == "language_model.lm_head.weight";
  });
  EXPECT_EQ(renamed.wrapped, (WrappedNames{"language_model.model.", "language_model.lm_head.weight"}));
  EXPECT_EQ(renamed.family->prefix, "language_model.model.");
  EXPECT_EQ(output_name(*renamed.family), "language_model.lm_head.weight");
}

TEST(Wrapper, ErrorsNameFileAndKey) {
  json config = genuine("hf_llava_tiny");
  config["text_config"]["model_type"] = "mamba";
  EXPECT_THAT(test::thrown_by([&] { parse_hf_config(config, "config.json"); }).text,
              HasSubstr("config.json: text_config: model_type \"mamba\" is not known"));
  config["text_config"] = 3;
  EXPECT_EQ(test::thrown_by([&] { parse_hf_config(config, "config.json"); }).code, core::ErrorCode::kCorruptData);
  config = genuine("hf_llava_tiny");
  config["text_config"]["embedding_multiplier"] = 12;
  EXPECT_THAT(test::thrown_by([&] { parse_hf_config(config, "config.json"); }).text, HasSubstr("embedding_multiplier"));
}

TEST(Wrapper, OtherTensorsAreRecognised) {
  for (const char* name : {"visual.patch_embed.proj.weight", "model.visual.merger.ln_q.weight",
                           "vision_tower.head.probe", "model.multi_modal_projector.linear_1.bias", "image_newline"}) {
    EXPECT_TRUE(is_wrapper_tensor(name)) << name;
  }
  for (const char* name : {"model.layers.0.visual.weight", "lm_head.weight", "model.language_model.norm.weight"}) {
    EXPECT_FALSE(is_wrapper_tensor(name)) << name;
  }
}

}  // namespace
}  // namespace ms::convert
