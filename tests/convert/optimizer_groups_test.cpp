// Parameter groups under Hugging Face's names, and the canonical ones.
#include "convert/optimizer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convert/huggingface_config.h"
#include "core/error.h"
#include "tests/ckpt/memory_source.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class OptimizerGroups : public ::testing::TestWithParam<const char*> {
 protected:
  OptimizerGroups() : config_(read_hf_config(core::cat(MS_TEST_DATA, "/", GetParam()))) {}

  // Matrices decay, vectors do not.
  std::vector<NamedGroup> two_groups() const {
    std::vector<NamedGroup> groups(2);
    for (size_t g = 0; g < 2; ++g) {
      groups[g].settings.lr = 3e-4;
      groups[g].settings.weight_decay = g == 0 ? 0.05 : 0.0;
    }
    for_each_tensor(*config_.family, config_.model, [&](const MappedTensor& mapped) {
      if (mapped.is_copy || mapped.role == core::TensorRole::kBuffer) return;
      std::vector<std::string>& names = groups[mapped.shape.size() > 1 ? 0 : 1].names;
      if (std::find(names.begin(), names.end(), name_in_memory(mapped)) == names.end()) {
        names.push_back(name_in_memory(mapped));
      }
    });
    return groups;
  }
  std::vector<ckpt::OptimizerGroup> canonical(const std::vector<NamedGroup>& groups) const {
    ckpt::test::MemorySource source;
    add_named_groups(groups, *config_.family, config_.model, "here", source.state().common);
    return ckpt::optimizer_groups(source);
  }
  HfConfig config_;
};

TEST_P(OptimizerGroups, AreUnchangedByTheCanonicalForm) {
  const std::vector<NamedGroup> groups = two_groups();
  const std::vector<ckpt::OptimizerGroup> made = canonical(groups);
  ASSERT_EQ(made.size(), 2U);
  const std::vector<NamedGroup> again = named_groups(made, *config_.family, config_.model);
  ASSERT_EQ(again.size(), 2U);
  for (size_t g = 0; g < 2; ++g) {
    EXPECT_TRUE(same_settings(again[g].settings, groups[g].settings));
    EXPECT_EQ(again[g].names, groups[g].names);
  }
  EXPECT_EQ(ckpt::group_of(made, "decoder.final_layernorm.weight")->weight_decay, 0.0);
  EXPECT_EQ(ckpt::group_of(made, "embedding.word_embeddings.weight")->weight_decay, 0.05);
}

TEST_P(OptimizerGroups, WritingNamesAParameterInNoGroup) {
  std::vector<NamedGroup> groups = two_groups();
  groups[1].names.pop_back();
  const std::vector<ckpt::OptimizerGroup> made = canonical(groups);
  const auto thrown = test::thrown_by([&] { named_groups(made, *config_.family, config_.model); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("is in no optimizer group"));
}

INSTANTIATE_TEST_SUITE_P(Families, OptimizerGroups,
                         ::testing::Values("hf_llama_tiny", "hf_qwen2_tiny", "hf_gpt2_tiny", "hf_mixtral_tiny"));

const HfConfig& llama() {
  static const HfConfig config = read_hf_config(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  return config;
}

std::vector<NamedGroup> query_apart(double lr) {
  std::vector<NamedGroup> groups(2);
  groups[0].settings.lr = 3e-4;
  groups[1].settings.lr = lr;
  for_each_tensor(*llama().family, llama().model, [&](const MappedTensor& mapped) {
    groups[mapped.name.ends_with("q_proj.weight") ? 1 : 0].names.push_back(mapped.name);
  });
  return groups;
}

TEST(OptimizerGroupsOfParts, DifferentSettingsForPartsOfAParameterAreRefused) {
  nlohmann::json common = nlohmann::json::object();
  const auto add = [&](double lr) {
    add_named_groups(query_apart(lr), *llama().family, llama().model, "here", common);
  };
  const auto thrown = test::thrown_by([&] { add(1e-4); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("q_proj.weight"));
  EXPECT_THAT(thrown.text, HasSubstr("--drop-optimizer"));
  EXPECT_NO_THROW(add(3e-4)) << "the same settings in two groups";
}

TEST(OptimizerGroupsOfParts, AmsgradAndDuplicateNamesAreRefused) {
  nlohmann::json common = nlohmann::json::object();
  std::vector<NamedGroup> groups = query_apart(3e-4);
  groups[0].settings.options["amsgrad"] = true;
  const auto add = [&] { add_named_groups(groups, *llama().family, llama().model, "here", common); };
  EXPECT_EQ(test::code_of(add), core::ErrorCode::kUnsupported);
  groups = query_apart(3e-4);
  groups[1].names.push_back(groups[0].names[0]);
  EXPECT_EQ(test::code_of(add), core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::convert
