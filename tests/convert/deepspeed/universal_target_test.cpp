// Universal checkpoints: those of ds_to_universal are read, and ours are read back with every element.
// tests/convert/deepspeed_test.py checks that DeepSpeed's own engine loads them.
#include "convert/deepspeed/universal_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/convert.h"
#include "convert/deepspeed.h"
#include "convert/detect.h"
#include "convert/huggingface.h"
#include "core/error.h"
#include "tests/convert/whole_tensor.h"
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

// Made by tests/data/make_deepspeed.py.
const std::string kRoot = cat(MS_TEST_DATA, "/deepspeed");
std::string expected(const std::string& name, std::string_view role) {
  return cat(kRoot, "/expected/", name, "/", role);
}

void expect_same(ckpt::Source& seen, ckpt::Source& wanted) {
  EXPECT_EQ(seen.shards().num_tensors(), wanted.shards().num_tensors());
  for (size_t t = 0; t < wanted.shards().num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const std::string key(wanted.shards().key(tensor));
    const TensorRole role = wanted.shards().role(tensor);
    EXPECT_EQ(test::whole_tensor(seen, key, role), test::whole_tensor(wanted, key, role))
        << core::role_name(role) << " of " << key;
  }
  EXPECT_EQ(seen.info().iteration, wanted.info().iteration);
  EXPECT_EQ(seen.info().common, wanted.info().common);
}

std::unique_ptr<ckpt::Source> open_zero(const std::string& name, bool drop_optimizer = false) {
  std::vector<std::string> decisions;
  return open_deepspeed(cat(kRoot, "/", name), {expected(name, "param"), drop_optimizer}, decisions);
}

class Universal : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  const test::TemporaryFolder folder_;
  std::vector<std::string> decisions_;
};

// With ZeRO 1 dictionaries and separate bf16 weights, with ZeRO 3 bare flat tensors.
TEST_P(Universal, DeepSpeedsCheckpointEqualsItsSource) {
  const std::string path = cat(kRoot, "/", name(), "_universal");
  EXPECT_EQ(detect_format(path).format, Format::kUniversal);
  EXPECT_THAT(detect_format(path + "/global_step3").rule, HasSubstr("zero/ and "));
  expect_same(*open_universal(path, {expected(name(), "param"), false}, decisions_), *open_zero(name()));
  EXPECT_THAT(decisions_, Contains("latest_universal names global_step3"));
  expect_same(*open_universal(path, {expected(name(), "param"), true}, decisions_), *open_zero(name(), true));
}

TEST_P(Universal, WrittenCheckpointReadsBackEqual) {
  ConvertOptions options;
  options.load_dir = cat(kRoot, "/", name());
  options.hf_cfg_dir = expected(name(), "param");
  options.save_dir = folder_ / "ucp";
  options.save_model_type = Format::kUniversal;
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_EQ(report.path, folder_ / "ucp/global_step3_universal");
  EXPECT_EQ(test::read_file(folder_ / "ucp/latest_universal"), "global_step3_universal");
  expect_same(*open_source(folder_ / "ucp"), *open_zero(name()));
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(options); }), ErrorCode::kInvalidArgument);  // it exists
}

INSTANTIATE_TEST_SUITE_P(, Universal, testing::Values("zero1", "zero3"));

// Transposed matrices, and weights that are not fp32.
TEST(UniversalTarget, Gpt2WithoutOptimizerRoundTrips) {
  const test::TemporaryFolder folder;
  const std::string model = cat(MS_TEST_DATA, "/hf_gpt2_tiny");
  ConvertOptions options;
  options.load_dir = model;
  options.save_dir = folder / "fp32";
  options.save_model_type = Format::kUniversal;
  EXPECT_THAT(convert_checkpoint(options).decisions, Contains(HasSubstr("without optimizer state")));
  options.save_dir = folder / "bf16";
  options.dtype = core::DType::kBf16;
  convert_checkpoint(options);
  for (const char* dtype : {"fp32", "bf16"}) {
    ConvertOptions back;
    back.load_dir = folder / dtype;
    back.save_dir = cat(folder / dtype, "_hf");
    back.save_model_type = Format::kHuggingFace;
    convert_checkpoint(back);
  }
  EXPECT_EQ(test::read_file(folder / "fp32_hf/model.safetensors"), test::read_file(model + "/model.safetensors"));
  options.save_dir = folder / "directly";
  options.save_model_type = Format::kHuggingFace;
  convert_checkpoint(options);
  EXPECT_EQ(test::read_file(folder / "bf16_hf/model.safetensors"),
            test::read_file(folder / "directly/model.safetensors"));
}

class ChangedUniversal : public testing::Test {
 protected:
  ChangedUniversal() {
    fs::copy(kRoot + "/zero1_universal", folder_.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  std::unique_ptr<ckpt::Source> open(bool drop_optimizer = false) {
    std::vector<std::string> decisions;
    return open_universal(folder_.path().string(), {expected("zero1", "param"), drop_optimizer}, decisions);
  }
  void expect(ErrorCode code, const std::string& part) {
    const test::Thrown thrown = test::thrown_by([&] { open(); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  const test::TemporaryFolder folder_;
  const fs::path zero_ = fs::path(folder_ / "global_step3/zero");
};

TEST_F(ChangedUniversal, MissingOrTruncatedFileIsRefused) {
  fs::remove(zero_ / "model.norm.weight/exp_avg_sq.pt");
  expect(ErrorCode::kNotFound, "exp_avg_sq.pt");
  fs::remove(zero_ / "model.norm.weight/exp_avg.pt");
  expect(ErrorCode::kUnsupported, "no exp_avg of \"model.norm.weight\"");
  EXPECT_NO_THROW(open(true));
  fs::resize_file(zero_ / "model.norm.weight/fp32.pt", 700);
  expect(ErrorCode::kCorruptData, "model.norm.weight/fp32.pt");
}

TEST_F(ChangedUniversal, WeightsOfAnotherStepAreRefused) {
  fs::copy(zero_ / "model.norm.weight/exp_avg.pt", zero_ / "model.norm.weight/fp32.pt",
           fs::copy_options::overwrite_existing);
  expect(ErrorCode::kCorruptData, "\"model.norm.weight\" of the model differs from its rounded fp32 values");
}

TEST_F(ChangedUniversal, EmptyZeroFolderIsRefused) {
  fs::remove_all(zero_);
  fs::create_directories(zero_);
  expect(ErrorCode::kCorruptData, "no folder of a weight");
}

}  // namespace
}  // namespace ms::convert
