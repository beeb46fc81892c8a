// Trees made by MindSpeed-LLM's own converter (tests/data/make_mindspeed_llm.py): msckpt reads the model that they were
// made from, and writes trees with the same content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "tests/convert/tensors_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using test::thrown_by;
using ::testing::Contains;
using ::testing::HasSubstr;

test::TensorsOfSource tensors(const std::string& path) { return test::tensors_of(*open_source(path)); }

std::string data(const std::string& name) { return core::cat(MS_TEST_DATA, "/mindspeed_llm/", name); }

struct Case {
  const char* name;
  int tp, pp, ep;
  int64_t layers_per_chunk;
  PipelineExtras extras;
  bool needs_config = false;  // nested rope_parameters, which its args lack
};

const Case kCases[] = {{"qwen3_virtual_noop", 2, 2, 1, 2, {{2, 7}, false}},
                       {"qwen3_dualpipev_noop", 1, 2, 1, 0, {{1, 6}, true}},
                       {"deepseek_v3_dualpipev", 2, 2, 2, 0, {{3}, true}, true}};

class MindSpeedLlmTest : public ::testing::TestWithParam<Case> {
 protected:
  ConvertOptions to_hf(const std::string& to) const {
    ConvertOptions options;
    options.load_dir = data(core::cat(GetParam().name, "/mg"));
    options.save_dir = to;
    options.save_model_type = Format::kHuggingFace;
    if (GetParam().needs_config) options.hf_cfg_dir = hf_;
    return options;
  }
  ConvertOptions to_tree(const std::string& to) const {
    ConvertOptions options;
    options.load_dir = hf_;
    options.save_dir = to;
    options.save_model_type = Format::kMegatron;
    options.target_tensor_parallel_size = GetParam().tp;
    options.target_pipeline_parallel_size = GetParam().pp;
    options.target_expert_parallel_size = GetParam().ep;
    options.num_layers_per_virtual_pipeline_stage = GetParam().layers_per_chunk;
    options.extras = GetParam().extras;
    options.make_vocab_size_divisible_by = 1;
    options.moe_grouped_gemm = GetParam().ep > 1;
    return options;
  }

  std::string hf_ = data(core::cat(GetParam().name, "/hf"));
  test::TemporaryFolder folder_;
};

TEST_P(MindSpeedLlmTest, TreeIsReadAsItsOriginalModel) {
  const ConvertReport report = convert_checkpoint(to_hf(folder_ / "hf"));
  EXPECT_EQ(report.from, Format::kMegatron);
  EXPECT_EQ(test::first_difference(tensors(folder_ / "hf"), tensors(hf_)), "");
  EXPECT_EQ(open_source(folder_ / "hf")->info().model, open_source(hf_)->info().model);
}

// Type, shape and bytes of the tensors in a dictionary, by name.
std::map<std::string, std::string> tensors_in(const TorchFile& file, const std::string& key) {
  std::map<std::string, std::string> found;
  const auto dictionary = file.root().find(key);
  if (!dictionary) return found;
  for (const auto& [name, value] : dictionary->pairs()) {
    const auto tensor = file.tensor(value);
    if (!tensor) continue;  // our _extra_state
    std::string bytes(tensor->size_bytes(), '\0');
    file.read(*tensor, 0, std::as_writable_bytes(std::span(bytes)));
    found[std::string(name.text())] = core::cat(safetensors_dtype_name(tensor->dtype), tensor->shape, bytes);
  }
  return found;
}

TEST_P(MindSpeedLlmTest, WrittenTreeMatchesTheConverters) {
  const bool latent = GetParam().ep > 1;  // megatron-core has other projections than MindSpeed-LLM
  convert_checkpoint(to_tree(folder_ / "mg"));
  size_t tensors = 0;
  for (const auto& rank : fs::directory_iterator(data(core::cat(GetParam().name, "/mg/iter_0000001")))) {
    const TorchFile genuine(rank.path() / "model_optim_rng.pt");
    const TorchFile ours(folder_ / ("mg/release/" + rank.path().filename().string() + "/model_optim_rng.pt"));
    for (const char* chunk : {"model0", "model1"}) {
      auto wanted = tensors_in(genuine, chunk), made = tensors_in(ours, chunk);
      if (latent) {
        std::erase_if(wanted, [&](const auto& entry) { return !made.contains(entry.first); });
        std::erase_if(made, [&](const auto& entry) { return !wanted.contains(entry.first); });
      }
      EXPECT_EQ(made, wanted) << rank.path() << chunk;
      tensors += made.size();
    }
  }
  EXPECT_GT(tensors, 20u);
}

TEST_P(MindSpeedLlmTest, OurTreeConvertsBackToTheOriginal) {
  convert_checkpoint(to_tree(folder_ / "mg"));
  const auto tree = open_source(folder_ / "mg");
  EXPECT_EQ(tree->info().model.num_layers, open_source(hf_)->info().model.num_layers);
  EXPECT_EQ(tree->info().layout.at("noop_layers"), GetParam().extras.noop_layers);
  ConvertOptions back = to_hf(folder_ / "hf");
  back.load_dir = folder_ / "mg";
  back.extras = GetParam().extras;  // as MindSpeed-LLM's command lines repeat it
  back.moe_grouped_gemm = true;
  const ConvertReport report = convert_checkpoint(back);
  EXPECT_THAT(report.decisions, Contains(HasSubstr("--moe-grouped-gemm has no effect")));
  EXPECT_EQ(test::first_difference(tensors(folder_ / "hf"), tensors(hf_)), "");
  back.save_dir = folder_ / "other";
  back.extras.noop_layers = {0};
  EXPECT_THAT(thrown_by([&] { convert_checkpoint(back); }).text, HasSubstr("--noop-layers [0], but"));
}

INSTANTIATE_TEST_SUITE_P(Trees, MindSpeedLlmTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// --mla-mm-split: rows of each head, gathered from two tensors.
TEST(MindSpeedLlmSplitTest, FourUpProjectionsAreReadAsTwo) {
  const test::TemporaryFolder folder;
  const std::string hf = data("deepseek_v3_mm_split/hf");
  ConvertOptions options;
  options.load_dir = data("deepseek_v3_mm_split/mg");
  options.save_dir = folder / "hf";
  options.save_model_type = Format::kHuggingFace;
  options.hf_cfg_dir = hf;
  convert_checkpoint(options);
  EXPECT_EQ(test::first_difference(tensors(folder / "hf"), tensors(hf)), "");
}

// One of the four is another tensor, or missing.
TEST(MindSpeedLlmSplitTest, MismatchedUpProjectionsAreRefused) {
  const struct {
    const char *from, *to;
    ErrorCode code;
    const char* says;
  } cases[] = {
      {"linear_v.weight", "li._extra_state", ErrorCode::kCorruptData,
       "linear_kv_up_proj.weight, which --mla-mm-split stores in two, 2 rows of each head are missing"},
      {"linear_qk_nope.weight", "linear_q._extra_state", ErrorCode::kCorruptData,
       "linear_q_up_proj.weight, which --mla-mm-split stores in two, 4 rows of each head are missing"},
      {"linear_qk_rope.weight", "linear_qk_nope.weight", ErrorCode::kCorruptData,
       "has shape [4, 6], but by args it should be [8, 6]"},
      {"linear_kv_nope.weight", "linear_kv_down.weight", ErrorCode::kUnsupported, "is not part of the model"},
      {"linear_v.weight", "linear_v.w_ight", ErrorCode::kUnsupported, "is not part of the model"},
  };
  for (const auto& [from, to, code, says] : cases) {
    const test::TemporaryFolder folder;
    fs::copy(data("deepseek_v3_mm_split/mg"), folder.path(), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      if (entry.path().filename() != "model_optim_rng.pt") continue;
      std::string bytes = test::read_file(entry.path().string());
      for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; ++at) {
        bytes.replace(at, std::string_view(to).size(), to);
      }
      bytes.replace(bytes.rfind("PK\1\2", bytes.rfind("data.pkl")) + 16, 4, std::string(4, '\0'));  // the pickle's CRC
      test::write_file(entry.path().string(), bytes);
    }
    ConvertOptions options;
    options.load_dir = folder.path().string();
    options.save_dir = folder / "hf";
    options.save_model_type = Format::kHuggingFace;
    options.hf_cfg_dir = data("deepseek_v3_mm_split/hf");
    const auto thrown = thrown_by([&] { convert_checkpoint(options); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(says));
    EXPECT_FALSE(fs::exists(options.save_dir));
  }
}

TEST(MindSpeedLlmArgsTest, MissingArgsComeFromConfigJson) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = data("deepseek_v3_dualpipev/mg");
  options.save_dir = folder / "ms";
  test::Thrown thrown = thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("rope_theta: give the folder of that file to msckpt convert as --hf-cfg-dir"));
  options.hf_cfg_dir = data("qwen3_virtual_noop/hf");
  thrown = thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("describes another model"));
  options.load_dir = data("qwen3_virtual_noop/mg");
  EXPECT_NO_THROW(convert_checkpoint(options));
}

TEST(MindSpeedLlmArgsTest, NoOpLayersAreSupportedInTreesOnly) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = data("qwen3_virtual_noop/hf");
  options.save_dir = folder / "ms";
  options.extras.noop_layers = {0, 1};
  for (const Format to : {Format::kNative, Format::kMegatronDist, Format::kHuggingFace}) {
    options.save_model_type = to;
    EXPECT_THAT(thrown_by([&] { convert_checkpoint(options); }).text,
                HasSubstr("--noop-layers applies to mg sources, and to mg results"));
  }
}

}  // namespace
}  // namespace ms::convert
