// --rename, --include, --exclude: the resulting names, and what is refused.
#include "convert/name_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/named.h"
#include "core/error.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

std::unique_ptr<ckpt::Source> open(const NameRules& rules, std::vector<std::string>& decisions,
                                   const char* folder = "/fsdp_ranks/shard_2") {
  std::vector<std::string> ignored;
  return with_names(open_named(std::string(MS_TEST_DATA) + folder, false, ignored), rules, decisions);
}

TEST(NameRules, RenameAppliesToTensorsAndTheirOptimizerState) {
  std::vector<std::string> decisions;
  const auto plain = open({}, decisions);
  const auto source = open({.rename = {R"(^block\.(up|down)_proj=mlp.$1)", "^(?=mlp)=model."}}, decisions);
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kExpAvg}) {
    const auto wanted = test::whole_tensor(*plain, "block.up_proj.weight", role);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(test::whole_tensor(*source, "model.mlp.up.weight", role), wanted);
    EXPECT_TRUE(test::whole_tensor(*source, "block.up_proj.weight", role).empty());
  }
  EXPECT_EQ(test::whole_tensor(*source, "optim.state.model.mlp.up.weight.step", TensorRole::kBuffer).size(), 4U);
  EXPECT_FALSE(test::whole_tensor(*source, "embed.weight", TensorRole::kParam).empty());
  EXPECT_EQ(source->shards().num_tensors(), plain->shards().num_tensors());
}

TEST(NameRules, ExcludeAppliesAfterInclude) {
  std::vector<std::string> decisions;
  const auto source = open({.include = {"weight$", "inv_freq"}, .exclude = {"^embed"}}, decisions);
  EXPECT_TRUE(source->shards().find("inv_freq", TensorRole::kParam).has_value());
  EXPECT_TRUE(source->shards().find("block.up_proj.weight", TensorRole::kParam).has_value());
  EXPECT_FALSE(source->shards().find("block.up_proj.bias", TensorRole::kParam).has_value());
  EXPECT_FALSE(source->shards().find("embed.weight", TensorRole::kParam).has_value());
  EXPECT_FALSE(source->shards().find("embed.weight", TensorRole::kExpAvg).has_value());
  EXPECT_THAT(decisions, Contains(HasSubstr("tensors are left out by --include and --exclude")));
}

TEST(NameRules, RuleWithoutEffectIsReported) {
  std::vector<std::string> decisions;
  open({.rename = {"nothing=x"}}, decisions);
  EXPECT_THAT(decisions, Contains("--rename \"nothing=x\" matches no name"));
}

TEST(NameRules, InvalidRulesAreRefused) {
  const auto refused = [](const NameRules& rules, const std::string& text) {
    std::vector<std::string> decisions;
    const test::Thrown thrown = test::thrown_by([&] { open(rules, decisions); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(text));
  };
  refused({.rename = {R"(.*proj\.weight=w)"}}, "would both be named \"w\"");
  refused({.rename = {"(=x"}}, "--rename \"(\": not a regular expression");
  refused({.rename = {"no template"}}, "expected REGEX=TEMPLATE");
  refused({.rename = {"^embed.*$="}}, "makes an empty name from");
  refused({.include = {"nothing"}}, "no tensor is left");
  refused({.exclude = {"["}}, "--exclude");
}

}  // namespace
}  // namespace ms::convert
