#include "convert/family.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "ckpt/plan.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

const char* const kGenuine[] = {
    "llama",    "gpt2",      "mistral",    "qwen2",       "qwen3",       "gemma2",      "phi3",  "glm",     "glm4",
    "mixtral",  "qwen2_moe", "qwen3_moe",  "glm4_moe",    "deepseek_v2", "deepseek_v3", "olmo2", "granite", "smollm3",
    "ernie4_5", "gpt_neox",  "starcoder2", "gemma3_text", "internlm2",   "nemotron",    "olmoe"};

HfConfig genuine(const std::string& name) {
  return read_hf_config(core::cat(MS_TEST_DATA, "/hf_", name, "_tiny/config.json"));
}

TEST(Families, AreFoundByModelType) {
  ASSERT_EQ(families().size(), std::size(kGenuine));
  std::set<std::string_view> architectures;
  for (const Family* family : families()) {
    EXPECT_EQ(&find_family(family->model_type), family);
    EXPECT_TRUE(architectures.insert(family->architecture).second) << family->architecture;
    EXPECT_EQ(genuine(std::string(family->model_type)).family, family);
  }
  const test::Thrown thrown = test::thrown_by([] { find_family("mamba\n"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  for (const char* part : {"glm4", "--name-map FILE", "msckpt convert --as-named"}) {
    EXPECT_NE(thrown.text.find(part), std::string::npos) << thrown.text;
  }
  EXPECT_EQ(thrown.text.find('\n'), std::string::npos) << thrown.text;
}

// Each parameter of the model consists of one whole tensor, of all of a packed one, or of each of its parts once.
TEST(Families, RulesNameEveryParameterOfTheModelOnce) {
  std::vector<const char*> names(std::begin(kGenuine), std::end(kGenuine));
  for (const char* biased : {"llama_biased", "qwen3_biased"}) names.push_back(biased);
  for (const char* name : names) {
    SCOPED_TRACE(name);
    const HfConfig config = genuine(name);
    // For each parameter, the boxes that its tensors cover.
    std::map<std::string, std::vector<core::ShardedTensor>> boxes;
    std::set<std::string> hf_names;
    for_each_tensor(*config.family, config.model, [&](const MappedTensor& mapped) {
      EXPECT_TRUE(hf_names.insert(mapped.name).second) << mapped.name;
      if (mapped.is_copy) return;
      for (const TensorPiece& piece : mapped.pieces) {
        boxes[mapped.key].push_back(
            {mapped.key, mapped.role, core::DType::kBf16, mapped.global_shape, piece.offset, piece.extent});
      }
    });
    const auto specs = layout::parameter_specs(config.model);
    for (const layout::ParameterSpec& spec : specs) {
      const auto& tiles = boxes[spec.key];
      ASSERT_FALSE(tiles.empty()) << spec.key;
      EXPECT_EQ(tiles[0].global_shape, spec.global_shape) << spec.key;
      EXPECT_TRUE(layout::has_role(spec, tiles[0].role)) << spec.key;
      ckpt::ShardTable table;
      for (const core::ShardedTensor& tile : tiles) table.push_back(tile);
      EXPECT_TRUE(ckpt::check_coverage(table).empty()) << spec.key;
    }
    EXPECT_EQ(boxes.size(), specs.size()) << "a rule for a parameter that the model does not have";
  }
}

TEST(Families, ModelWithoutConfigGetsTheFirstFamilyThatExpressesIt) {
  core::TransformerConfig model = genuine("mistral").model;
  EXPECT_EQ(family_of_model(model).model_type, "mistral");
  model.sliding_window = 0;
  EXPECT_EQ(family_of_model(model).model_type, "llama");
  model = genuine("qwen3").model;
  EXPECT_EQ(family_of_model(model).model_type, "qwen3");
  for (const char* name : kGenuine) {
    if (!genuine(name).model.has_experts()) continue;
    EXPECT_EQ(family_of_model(genuine(name).model).model_type, std::string_view(name));
  }
  EXPECT_EQ(family_of_model(genuine("llama_biased").model).model_type, "llama");
  EXPECT_EQ(family_of_model(genuine("qwen3_biased").model).model_type, "qwen3");
  EXPECT_EQ(family_of_model(genuine("qwen2").model).model_type, "qwen2") << "Llama's attention_bias is of o_proj too";
  model.post_norm = true;
  EXPECT_EQ(test::code_of([&] { family_of_model(model); }), core::ErrorCode::kUnsupported);
}

// A family that is named, by a map or a flag, writes no other model than it is given.
TEST(Families, NamedOneRefusesWhatItCannotSay) {
  const Family& llama = find_family("llama");
  core::TransformerConfig model = genuine("llama").model;
  EXPECT_EQ(lost_by(llama, model), "");
  EXPECT_NO_THROW(make_hf_config(model, {}, core::DType::kFp32, &llama));
  model.softmax_type = "off-by-one";
  model.sliding_window = 7;
  EXPECT_EQ(lost_by(llama, model), "--softmax-type off-by-one, --sliding-window 7");
  const test::Thrown thrown = test::thrown_by([&] { make_hf_config(model, {}, core::DType::kFp32, &llama); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_NE(thrown.text.find("llama cannot express this model: it has no key for --softmax-type off-by-one"),
            std::string::npos)
      << thrown.text;
  EXPECT_EQ(model_differences(model, model), "");
}

}  // namespace
}  // namespace ms::convert
