// Checkpoints that DeepSpeed's engine saved under ZeRO 1, 2 and 3: every element of weights, masters and moments,
// compared with what zero_to_fp32 reads; and what is refused.
#include "convert/deepspeed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/execute.h"
#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/huggingface.h"
#include "convert/torch/zip_reader.h"
#include "core/error.h"
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

// Made by tests/data/make_deepspeed.py.
const std::string kRoot = cat(MS_TEST_DATA, "/deepspeed");
std::string expected(const std::string& name, std::string_view role) {
  return cat(kRoot, "/expected/", name, "/", role);
}

std::unique_ptr<ckpt::Source> open_case(const std::string& name, std::vector<std::string>& decisions,
                                        bool drop_optimizer = false) {
  return open_deepspeed(cat(kRoot, "/", name), {expected(name, "param"), drop_optimizer}, decisions);
}

// fp32: the role that holds what zero_to_fp32 calls the weights.
void expect_all(const std::string& name, TensorRole fp32) {
  std::vector<std::string> decisions;
  const auto source = open_case(name, decisions);
  test::expect_equals_folder(*source, fp32, expected(name, "param"));
  test::expect_equals_folder(*source, TensorRole::kExpAvg, expected(name, "exp_avg"));
  test::expect_equals_folder(*source, TensorRole::kExpAvgSq, expected(name, "exp_avg_sq"));
  EXPECT_EQ(source->info().iteration, 3);
  EXPECT_EQ(source->info().common.at("step"), 3);
  EXPECT_THAT(decisions, Contains("latest names global_step3"));
}

TEST(DeepSpeed, Zero1OfBf16WeightsHasMasters) {
  EXPECT_EQ(detect_format(kRoot + "/zero1").format, Format::kDeepSpeed);
  EXPECT_EQ(detect_format(kRoot + "/zero1").rule, "latest");
  EXPECT_EQ(detect_format(kRoot + "/zero1/global_step3").rule, "mp_rank_00_model_states.pt");
  expect_all("zero1", TensorRole::kMaster);
  std::vector<std::string> decisions;
  const auto source = open_case("zero1", decisions);
  for (const core::ShardedTensor& shard : source->shards()) {
    if (shard.role != TensorRole::kParam) continue;
    EXPECT_EQ(shard.dtype, core::DType::kBf16);
    const auto weight = test::whole_tensor(*source, shard.key, TensorRole::kParam);
    const auto master = test::whole_tensor(*source, shard.key, TensorRole::kMaster);
    std::vector<std::byte> rounded(weight.size());
    ckpt::convert_elements(master.data(), core::DType::kFp32, rounded.data(), core::DType::kBf16,
                           static_cast<int64_t>(weight.size() / 2));
    EXPECT_EQ(weight, rounded) << shard.key;
  }
  EXPECT_EQ(source->info().common.at("consumed_train_samples"), 6);
  EXPECT_EQ(source->info().common.at("config").at("optimizer").at("adam_beta2"), 0.999);
}

// Three ranks, tied, fp32, in the order of round_robin_gradients with padding between weights, and an elastic optimizer
// state.
TEST(DeepSpeed, Zero2MatchesZeroToFp32) { expect_all("zero2", TensorRole::kParam); }

// Three ranks, a number that does not divide most weights.
TEST(DeepSpeed, Zero3MatchesZeroToFp32) {
  EXPECT_EQ(detect_format(kRoot + "/zero3/global_step3").rule, "zero_pp_rank_0_mp_rank_00_model_states.pt");
  expect_all("zero3", TensorRole::kParam);
}

TEST(DeepSpeed, FrozenWeightHasNoState) {
  std::vector<std::string> decisions;
  const test::Thrown thrown = test::thrown_by([&] { open_case("zero3_frozen", decisions); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(
      thrown.text,
      HasSubstr("no exp_avg of \"model.layers.0.self_attn.o_proj.weight\": it was probably frozen in training"));
  // Only the frozen weight is bf16, as in training.
  const auto source = open_case("zero3_frozen", decisions, true);
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kExpAvg));
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = kRoot + "/zero3_frozen";
  options.hf_cfg_dir = expected("zero3_frozen", "param");
  options.save_dir = folder / "hf";
  options.save_model_type = Format::kHuggingFace;
  options.drop_optimizer = true;
  options.dtype = core::DType::kFp32;
  convert_checkpoint(options);
  EXPECT_EQ(test::read_file(folder / "hf/model.safetensors"),
            test::read_file(expected("zero3_frozen", "param") + "/model.safetensors"));
}

TEST(DeepSpeed, ConvertsThroughNativeToHuggingFace) {
  const test::TemporaryFolder folder;
  ConvertOptions options;
  options.load_dir = kRoot + "/zero3";
  options.hf_cfg_dir = expected("zero3", "param");
  options.save_dir = folder / "native";
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_EQ(report.from, Format::kDeepSpeed);
  EXPECT_EQ(report.to, Format::kNative);
  options.load_dir = options.save_dir;
  options.save_dir = folder / "hf";
  options.save_model_type = Format::kHuggingFace;
  options.drop_optimizer = true;
  convert_checkpoint(options);
  EXPECT_EQ(test::read_file(folder / "hf/model.safetensors"),
            test::read_file(expected("zero3", "param") + "/model.safetensors"));
}

TEST(DeepSpeed, MissingConfigIsRefused) {
  std::vector<std::string> decisions;
  const test::Thrown thrown = test::thrown_by([&] { open_deepspeed(kRoot + "/zero1", {}, decisions); });
  EXPECT_EQ(thrown.code, ErrorCode::kNotFound);
  EXPECT_THAT(thrown.text, HasSubstr("--hf-cfg-dir"));
}

// A fixture, modified by a test.
class ChangedDeepSpeed : public testing::Test {
 protected:
  void take(const std::string& name) {
    name_ = name;
    fs::copy(kRoot + "/" + name, folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    tag_ = folder_ / "global_step3";
  }
  void expect(ErrorCode code, const std::string& part, bool drop_optimizer = false) {
    std::vector<std::string> decisions;
    const test::Thrown thrown = test::thrown_by([&] {
      open_deepspeed(folder_.path().string(), {expected(name_, "param"), drop_optimizer}, decisions);
    });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  const test::TemporaryFolder folder_;
  fs::path tag_;
  std::string name_;
};

TEST_F(ChangedDeepSpeed, LatestThatNamesAMissingFolderIsRefused) {
  take("zero1");
  for (const char* tag : {"global_step4", "../zero1", "", ".", "global_step3/"}) {
    test::write_file(folder_ / "latest", tag);
    expect(ErrorCode::kCorruptData, "but there is no such folder next to it");
  }
  test::write_file(folder_ / "latest", "global_step3\n");
  std::vector<std::string> decisions;
  EXPECT_NO_THROW(open_deepspeed(folder_.path().string(), {expected(name_, "param"), false}, decisions));
}

TEST_F(ChangedDeepSpeed, MissingRankIsRefused) {
  take("zero2");
  fs::remove(tag_ / "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect(ErrorCode::kCorruptData, "optimizer states of data-parallel rank 1 are missing");
  fs::remove(tag_ / "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  expect(ErrorCode::kCorruptData, "partition_count is 3, but there are optimizer states of 1 ranks");
  std::vector<std::string> decisions;  // the weights are in another file
  EXPECT_NO_THROW(open_deepspeed(folder_.path().string(), {expected(name_, "param"), true}, decisions));
}

TEST_F(ChangedDeepSpeed, MissingZero3RankIsRefused) {
  take("zero3");
  fs::remove(tag_ / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt");
  expect(ErrorCode::kCorruptData, "model states of 3 ranks, but optimizer states of 2", true);
}

TEST_F(ChangedDeepSpeed, RanksOfAnotherStepAreRefused) {
  take("zero2");
  fs::copy(tag_ / "zero_pp_rank_1_mp_rank_00_optim_states.pt", tag_ / "zero_pp_rank_0_mp_rank_00_optim_states.pt",
           fs::copy_options::overwrite_existing);
  expect(ErrorCode::kCorruptData, "differs from its rounded fp32 values");
}

TEST_F(ChangedDeepSpeed, TwoRunsInOneFolderAreRefused) {
  take("zero1");
  fs::copy(tag_ / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", tag_ / "zero_pp_rank_0_mp_rank_00_optim_states.pt");
  expect(ErrorCode::kCorruptData, "they are from different runs");
}

TEST_F(ChangedDeepSpeed, UnsupportedPartsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"mp_rank_01_model_states.pt", "several model-parallel ranks"},
      {"layer_01-model_00-model_states.pt", "a pipeline module"},
      {"layer_1_expert_0_mp_rank_00_model_states.pt", "a checkpoint with experts"},
      {"expp_rank_0_mp_rank_00_optim_states.pt", "a checkpoint with experts"}};
  take("zero1");
  for (const auto& [name, part] : cases) {
    test::write_file(tag_ / name, "");
    expect(ErrorCode::kUnsupported, part);
    fs::remove(tag_ / name);
  }
}

TEST_F(ChangedDeepSpeed, ModelThatContradictsConfigIsRefused) {
  take("zero1");
  std::vector<std::string> decisions;
  const test::Thrown thrown = test::thrown_by([&] {
    open_deepspeed(folder_.path().string(), {cat(MS_TEST_DATA, "/hf_gpt2_tiny"), false}, decisions);
  });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("no tensor is named transformer.wte.weight"));
}

// Every file, truncated at every length, is refused with one line.
TEST_F(ChangedDeepSpeed, TruncationAnywhereIsRefused) {
  take("zero3");
  const fs::path file = tag_ / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const std::string whole = test::read_file(file);
  for (size_t size = 0; size < whole.size(); size += 97) {
    test::write_file(file, whole.substr(0, size));
    std::vector<std::string> decisions;
    const test::Thrown thrown = test::thrown_by([&] {
      open_deepspeed(folder_.path().string(), {expected(name_, "param"), false}, decisions);
    });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << size << ": " << thrown.text;
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
}

// The result is an error or a parsed file, never a crash.
TEST_F(ChangedDeepSpeed, AnyFlippedBitIsRefusedOrRead) {
  take("zero3");
  for (const char* name :
       {"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"}) {
    const std::string file = (tag_ / name).string(), whole = test::read_file(file);
    for (size_t bit = 0; bit < whole.size() * 8; bit += 251) {
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      test::write_file(file, changed);
      std::vector<std::string> decisions;
      try {
        const auto source = open_deepspeed(folder_.path().string(), {expected(name_, "param"), false}, decisions);
        test::whole_tensor(*source, "decoder.final_layernorm.weight", TensorRole::kExpAvg);
      } catch (const core::Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported) << error.what();
      }
    }
    test::write_file(file, whole);
  }
}

// A changed byte of a tensor fails the CRC check.
TEST_F(ChangedDeepSpeed, FlippedTensorBitFailsTheCrc) {
  take("zero3");
  const std::string file = (tag_ / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").string();
  const ZipReader archive(ArchiveRange::whole(file));
  const auto record = archive.find("bf16_zero_pp_rank_1_mp_rank_00_optim_states/data/1");
  ASSERT_TRUE(record);
  std::string bytes = test::read_file(file);
  bytes[static_cast<size_t>(archive.entries()[*record].at)] ^= 1;
  test::write_file(file, bytes);
  ConvertOptions options;
  options.load_dir = folder_.path().string();
  options.hf_cfg_dir = expected(name_, "param");
  options.save_dir = folder_ / "native";
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << thrown.text;
  EXPECT_THAT(thrown.text, HasSubstr("CRC-32"));
}

}  // namespace
}  // namespace ms::convert
