#include "convert/family.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ckpt/layout.h"
#include "convert/huggingface_config.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

const char* const kGenuine[] = {"llama", "gpt2", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "glm", "glm4"};

HfConfig genuine(const std::string& name) {
  return read_hf_config(core::cat(MS_TEST_DATA, "/hf_", name, "_tiny/config.json"));
}

bool is_present(const NameRule& rule, const core::TransformerConfig& model) {
  switch (rule.presence) {
    case Presence::kAlways:
      return true;
    case Presence::kQkvBias:
      return model.add_qkv_bias;
    case Presence::kQkLayernorm:
      return model.qk_layernorm;
    case Presence::kUntied:
      return model.untie_embeddings_and_output_weights;
  }
  return false;
}

TEST(Families, AreFoundByTheirModelType) {
  ASSERT_EQ(families().size(), std::size(kGenuine));
  std::set<std::string_view> architectures;
  for (const Family* family : families()) {
    EXPECT_EQ(&find_family(family->model_type), family);
    EXPECT_TRUE(architectures.insert(family->architecture).second) << family->architecture;
    EXPECT_EQ(genuine(std::string(family->model_type)).family, family);
  }
  const test::Thrown thrown = test::thrown_by([] { find_family("mamba\n"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_NE(thrown.text.find("glm4"), std::string::npos) << thrown.text;
  EXPECT_EQ(thrown.text.find('\n'), std::string::npos) << thrown.text;
}

// Each parameter of the model is made of one whole tensor, of all of a packed one, or of each of its parts once.
TEST(Families, RulesNameEveryParameterOfTheModelOnce) {
  for (const char* name : kGenuine) {
    SCOPED_TRACE(name);
    const HfConfig config = genuine(name);
    std::map<std::string, std::multiset<Part>> parts;
    std::set<std::string> hf_names;
    const auto take = [&](std::span<const NameRule> rules, const std::string& before_hf, const std::string& before) {
      for (const NameRule& rule : rules) {
        if (!is_present(rule, config.model)) continue;
        EXPECT_TRUE(hf_names.insert(core::cat(before_hf, rule.hf)).second) << rule.hf;
        parts[core::cat(before, rule.canonical)].insert(rule.part);
      }
    };
    take(config.family->before, "", "");
    for (int64_t layer = 0; layer < config.model.num_layers; ++layer) {
      take(config.family->layer, core::cat("layers.", layer, "."), core::cat("decoder.layers.", layer, "."));
    }
    take(config.family->after, "", "");
    const std::set<std::multiset<Part>> whole = {
        {Part::kWhole}, {Part::kQkv}, {Part::kQuery, Part::kKey, Part::kValue}, {Part::kGate, Part::kUp}};
    std::set<std::string> keys;
    for (const ckpt::ParameterSpec& spec : ckpt::parameter_specs(config.model)) {
      keys.insert(spec.key);
      EXPECT_TRUE(whole.contains(parts[spec.key])) << spec.key;
    }
    EXPECT_EQ(parts.size(), keys.size()) << "a rule for a parameter that the model does not have";
  }
}

TEST(Families, AModelWithoutAConfigIsSaidByTheFirstThatCan) {
  core::TransformerConfig model = genuine("mistral").model;
  EXPECT_EQ(family_of_model(model).model_type, "mistral");
  model.sliding_window = 0;
  EXPECT_EQ(family_of_model(model).model_type, "llama");
  model = genuine("qwen3").model;
  EXPECT_EQ(family_of_model(model).model_type, "qwen3");
  model.post_norm = true;
  EXPECT_EQ(test::code_of([&] { family_of_model(model); }), core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ms::convert
