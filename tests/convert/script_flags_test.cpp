#include "convert/script_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/huggingface_config.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ScriptFlagsTest, MindSpeedLlmNamesGiveFamilies) {
  const std::pair<const char*, const char*> names[] = {{"llama2", "llama"},
                                                       {"qwen25", "qwen2"},
                                                       {"qwen2-moe", "qwen2_moe"},
                                                       {"qwen3", "qwen3"},
                                                       {"qwen3-moe", "qwen3_moe"},
                                                       {"qwen3_moe", "qwen3_moe"},
                                                       {"glm45", "glm4_moe"},
                                                       {"glm45-air", "glm4_moe"},
                                                       {"glm4_9b", "glm4"},
                                                       {"deepseek2", "deepseek_v2"},
                                                       {"deepseek3", "deepseek_v3"},
                                                       {"deepseek2-lite", "deepseek_v2"},
                                                       {"phi3.5", "phi3"},
                                                       {"mixtral", "mixtral"},
                                                       {"magistral", "mistral"},
                                                       {"gemma2", "gemma2"},
                                                       {"gpt2", "gpt2"}};
  for (const auto& [theirs, ours] : names) EXPECT_EQ(family_of_script(theirs, false).model_type, ours) << theirs;
  EXPECT_EQ(family_of_script("llama2", true).model_type, "qwen2") << "with --add-qkv-bias";
  const test::Thrown thrown = thrown_by([] { family_of_script("mamba2", false); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--model-type-hf \"mamba2\" is not supported; known: llama, mistral"));
}

TEST(ScriptFlagsTest, FlagsWithoutEffectAreReportedAndOthersRefused) {
  EXPECT_THAT(notes_on_script_flags(std::vector<std::string>{"--use-mcore-models", "--spec"}, true),
              ElementsAre(HasSubstr("--use-mcore-models has no effect: "), HasSubstr("--spec")));
  EXPECT_TRUE(notes_on_script_flags({}, true).empty());
  const test::Thrown thrown = thrown_by([] { notes_on_script_flags(std::vector<std::string>{"--lora-load"}, false); });
  const std::vector<std::string> split = {"--mla-mm-split"};
  EXPECT_EQ(notes_on_script_flags(split, false).size(), 1u);
  EXPECT_EQ(thrown_by([&] { notes_on_script_flags(split, true); }).code, core::ErrorCode::kUnsupported);
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--lora-load: MindSpeed-LLM's LoRA checkpoints are not supported"));
}

TEST(ScriptFlagsTest, ClaimsAreComparedWithTheModel) {
  const HfConfig config = read_hf_config(std::string(MS_TEST_DATA) + "/hf_deepseek_v3_tiny");
  const auto check = [&](const ScriptClaims& claims, int64_t noops = 0) {
    return check_script_claims(claims, config.model, config.original, noops);
  };
  EXPECT_EQ(check({}), nullptr);
  EXPECT_EQ(check({"deepseek3"}), &find_family("deepseek_v3"));
  EXPECT_EQ(check({.num_layers = 2, .first_k_dense_replace = 1, .mtp_num_layers = 1}), nullptr);
  EXPECT_EQ(check({.num_layers = 4}, 2), nullptr) << "including no-op layers";
  const auto text = [&](const ScriptClaims& claims) {
    const test::Thrown thrown = thrown_by([&] { check(claims); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
    return thrown.text;
  };
  EXPECT_THAT(text({"qwen3-moe"}), HasSubstr("\"qwen3-moe\" is qwen3_moe, but config.json's model_type is "
                                             "\"deepseek_v3\""));
  EXPECT_THAT(text({.num_layers = 1}), HasSubstr("--num-layers 1, but the model has 2"));
  EXPECT_THAT(text({.first_k_dense_replace = 2}), HasSubstr("but the first 1 of the model's 2 layers"));
  EXPECT_THAT(text({.mtp_num_layers = 0}), HasSubstr("--mtp-num-layers 0, but the model has 1"));
  // For a model that does not come from a folder: whether the family can express it.
  const nlohmann::json none;
  EXPECT_EQ(check_script_claims({"deepseek3"}, config.model, none, 0), &find_family("deepseek_v3"));
  EXPECT_THAT(thrown_by([&] { check_script_claims({"llama2"}, config.model, none, 0); }).text,
              HasSubstr("a config.json of llama cannot express this model"));
}

}  // namespace
}  // namespace ms::convert
