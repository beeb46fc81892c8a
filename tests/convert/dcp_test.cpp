// A checkpoint that FSDP2 and torch.distributed.checkpoint wrote of a transformers model: every element of weights and
// moments, compared with what torch itself gathers; and what is refused.
#include "convert/dcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "ckpt/optimizer_settings.h"
#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/huggingface.h"
#include "core/error.h"
#include "core/io/file.h"
#include "tests/convert/conversions.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

// Made by tests/data/make_dcp_fsdp.py.
const std::string kFolder = cat(MS_TEST_DATA, "/dcp_fsdp");
std::string expected(std::string_view role) { return cat(kFolder, "/expected/", role); }

// The fixture, modified by a test.
class ChangedDcp : public testing::Test {
 protected:
  ChangedDcp() {
    fs::copy(kFolder, folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  // Replaces text by other text of the same length.
  void rename(const std::string& from, const std::string& to, size_t times = SIZE_MAX) {
    ASSERT_EQ(from.size(), to.size());
    std::string metadata = test::read_file(folder_ / ".metadata");
    size_t done = 0;
    for (size_t at = 0; done < times && (at = metadata.find(from, at)) != std::string::npos; ++done) {
      metadata.replace(at, from.size(), to);
    }
    ASSERT_GT(done, 0U);
    test::write_file(folder_ / ".metadata", metadata);
  }
  std::unique_ptr<ckpt::Source> open(bool drop_optimizer = false) {
    return open_dcp(folder_.path().string(), {expected("param"), drop_optimizer}, decisions_);
  }
  void expect(ErrorCode code, const std::string& part) {
    const test::Thrown thrown = test::thrown_by([&] { open(); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  const test::TemporaryFolder folder_;
  std::vector<std::string> decisions_;
};

TEST(Dcp, EqualsTorchsGather) {
  EXPECT_EQ(detect_format(kFolder).rule, ".metadata of PyTorch DCP");
  std::vector<std::string> decisions;
  const auto source = open_dcp(kFolder, {expected("param"), false}, decisions);
  test::expect_equals_folder(*source, TensorRole::kParam, expected("param"));
  test::expect_equals_folder(*source, TensorRole::kExpAvg, expected("exp_avg"));
  test::expect_equals_folder(*source, TensorRole::kExpAvgSq, expected("exp_avg_sq"));
  EXPECT_EQ(source->info().common.at("step"), 3);
  EXPECT_EQ(source->info().iteration, 3);
  EXPECT_THAT(
      decisions,
      Contains(HasSubstr(
          "1 entries that are neither weights, moments nor the optimizer's settings are skipped, as \"epoch\"")));
}

// The optimizer of make_dcp_fsdp.py: AdamW(lr=1e-2).
TEST(Dcp, OptimizerSettingsAreReadFromTheGroup) {
  std::vector<std::string> decisions;
  const auto source = open_dcp(kFolder, {expected("param"), false}, decisions);
  const std::vector<ckpt::OptimizerGroup> groups = ckpt::optimizer_groups(*source);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].lr, 1e-2);
  EXPECT_EQ(groups[0].beta1, 0.9);
  EXPECT_EQ(groups[0].beta2, 0.999);
  EXPECT_EQ(groups[0].eps, 1e-8);
  EXPECT_EQ(groups[0].weight_decay, 1e-2);
  EXPECT_EQ(groups[0].step, 3);
  EXPECT_EQ(groups[0].options.at("amsgrad"), false);
  EXPECT_TRUE(groups[0].options.at("foreach").is_null());
  EXPECT_NE(ckpt::group_of(groups, "decoder.layers.0.self_attention.linear_qkv.weight"), nullptr);
}

TEST(Dcp, ConvertsThroughNativeToHuggingFace) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = kFolder;
  options.hf_cfg_dir = expected("param");
  options.save_model_type = Format::kNative;
  options.target_tensor_parallel_size = 2;
  options.save_dir = folder / "native";
  EXPECT_EQ(convert_checkpoint(options).from, Format::kDcp);
  options.load_dir = options.save_dir;
  options.save_dir = folder / "hf";
  options.save_model_type = Format::kHuggingFace;
  options.target_tensor_parallel_size = 1;
  options.drop_optimizer = true;
  convert_checkpoint(options);
  EXPECT_EQ(test::read_file(folder / "hf/model.safetensors"),
            test::read_file(expected("param") + "/model.safetensors"));
}

TEST(Dcp, MissingConfigIsRefused) {
  std::vector<std::string> decisions;
  const test::Thrown thrown = test::thrown_by([&] { open_dcp(kFolder, {}, decisions); });
  EXPECT_EQ(thrown.code, ErrorCode::kNotFound);
  EXPECT_THAT(thrown.text, HasSubstr("--hf-cfg-dir"));
}

TEST_F(ChangedDcp, PrefixIsTakenFromTheEmbedding) {
  for (const char* part : {"model.", "lm_head."}) {
    rename(cat("model.", part), cat("mymod.", part));
    rename(cat("optim.state.", part), cat("mysgd.state.", part));
  }
  const auto source = open();
  test::expect_equals_folder(*source, TensorRole::kParam, expected("param"));
  test::expect_equals_folder(*source, TensorRole::kExpAvg, expected("exp_avg"));
}

TEST_F(ChangedDcp, DropOptimizerLeavesOutOptimizerState) {
  const auto source = open(true);
  test::expect_equals_folder(*source, TensorRole::kParam, expected("param"));
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kExpAvg));
  EXPECT_EQ(source->info().iteration, 0);
  EXPECT_THAT(decisions_, Contains("optimizer state is left out"));
}

TEST_F(ChangedDcp, MissingMomentIsRefused) {
  rename("model.norm.weight.exp_avg_sq", "model.norm.weight.otherthing");
  expect(ErrorCode::kCorruptData, "exp_avg_sq of model.norm.weight is missing");
  EXPECT_NO_THROW(open(true));
}

TEST_F(ChangedDcp, ModelThatContradictsConfigIsRefused) {
  rename("embed_tokens", "embed_tokenz");
  expect(ErrorCode::kUnsupported, "no tensor is named model.embed_tokens.weight");
}

TEST_F(ChangedDcp, UnknownTensorIsRefused) {
  rename("model.model.norm.weight", "model.model.mean.weight");
  expect(ErrorCode::kCorruptData, "tensor model.norm.weight is missing");
}

TEST_F(ChangedDcp, WrapperPartsOfNamesAreRemoved) {
  for (const char* part : {"model.", "lm_head."}) rename(cat("optim.state.", part), cat("x._orig_mod.", part));
  test::expect_equals_folder(*open(), TensorRole::kExpAvgSq, expected("exp_avg_sq"));
}

TEST(Dcp, MegatronTorchDistIsNotPlainDcp) { EXPECT_EQ(dcp_sign(cat(MS_TEST_DATA, "/megatron_dist/iter_0000003")), ""); }

}  // namespace
}  // namespace ms::convert
