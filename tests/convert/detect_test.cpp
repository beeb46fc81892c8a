#include "convert/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using test::write_file;
using ::testing::HasSubstr;

std::string error_of(const std::string& path, ErrorCode code) {
  try {
    detect_format(path);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(DetectTest, HuggingFaceFoldersAreDetectedByContent) {
  const Detection single = detect_format(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  EXPECT_EQ(single.format, Format::kHuggingFace);
  EXPECT_EQ(single.rule, "config.json and model.safetensors");
  const Detection sharded = detect_format(core::cat(MS_TEST_DATA, "/hf_llama_tiny_sharded"));
  EXPECT_EQ(sharded.format, Format::kHuggingFace);
  EXPECT_EQ(sharded.rule, "config.json and model.safetensors.index.json");
}

TEST(DetectTest, OpenSourceReturnsTheModel) {
  const auto source = open_source(core::cat(MS_TEST_DATA, "/hf_llama_tiny"));
  EXPECT_EQ(source->info().model.num_layers, 2);
  EXPECT_EQ(source->info().iteration, 0);
}

TEST(DetectTest, DeepSpeedIsDetectedByPointersOrFiles) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path().string();
  std::filesystem::create_directories(folder / "zero");
  write_file(folder / "mp_rank_00_model_states.pt", "");
  EXPECT_EQ(detect_format(path).format, Format::kUniversal);
  EXPECT_EQ(detect_format(path).rule, "zero/ and mp_rank_00_model_states.pt");
  std::filesystem::remove(folder / "zero");
  EXPECT_EQ(detect_format(path).format, Format::kDeepSpeed);
  EXPECT_EQ(detect_format(path).rule, "mp_rank_00_model_states.pt");
  write_file(folder / "latest_universal", "");
  EXPECT_EQ(detect_format(path).rule, "mp_rank_00_model_states.pt");
  std::filesystem::remove(folder / "mp_rank_00_model_states.pt");
  EXPECT_EQ(detect_format(path).rule, "latest_universal");
  write_file(folder / "latest", "");  // with both, the one that the other was made from
  EXPECT_EQ(detect_format(path).format, Format::kDeepSpeed);
}

TEST(DetectTest, PlainDcpIsDetected) {
  const std::string folder = core::cat(MS_TEST_DATA, "/dcp_fsdp");
  EXPECT_EQ(detect_format(folder).format, Format::kDcp);
  const test::TemporaryFolder without_config;
  std::filesystem::copy_file(folder + "/.metadata", without_config / ".metadata");
  EXPECT_EQ(detect_format(without_config.path().string()).format, Format::kDcp);
}

TEST(DetectTest, MegatronTorchDistIsDetected) {
  const std::string root = core::cat(MS_TEST_DATA, "/megatron_dist");
  EXPECT_EQ(detect_format(root).format, Format::kMegatronDist);
  EXPECT_EQ(detect_format(root).rule, "iter_0000003/.metadata and metadata.json");
  EXPECT_EQ(detect_format(root + "/iter_0000003").rule, ".metadata and metadata.json");
  EXPECT_EQ(open_source(root)->info().model.num_layers, 2);
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "iter_0000100");
  write_file(folder / "iter_0000100/.metadata", "");
  EXPECT_THAT(error_of(folder.path().string(), ErrorCode::kCorruptData), HasSubstr("the save was interrupted"));
}

TEST(DetectTest, MegatronTreesAreDetected) {
  const std::string root = core::cat(MS_TEST_DATA, "/megatron/swiglu_tp2_pp2_distributed");
  const Detection found = detect_format(root);
  EXPECT_EQ(found.format, Format::kMegatron);
  EXPECT_EQ(format_name(found.format), "mg");
  EXPECT_EQ(found.rule, "iter_0000007/mp_rank_00_000");
  EXPECT_EQ(detect_format(root + "/iter_0000007").rule, "mp_rank_00_000");
  EXPECT_EQ(open_source(root)->info().model.num_layers, 3);
}

TEST(DetectTest, UnknownContentIsRefused) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.path().string(), ErrorCode::kNotFound), HasSubstr("contains no checkpoint"));
  EXPECT_THAT(error_of(folder / "none", ErrorCode::kNotFound), HasSubstr("no such file or folder"));
  write_file(folder / "model.safetensors", "");
  EXPECT_THAT(error_of(folder / "model.safetensors", ErrorCode::kInvalidArgument),
              HasSubstr("neither a folder nor a file of tensors"));
}

TEST(DetectTest, NamedTensorsAreDetected) {
  const std::string data = MS_TEST_DATA;
  EXPECT_EQ(detect_format(data + "/fsdp_ranks/hsdp_4").format, Format::kRankFiles);
  EXPECT_EQ(detect_format(data + "/hf_llama_tiny/model.safetensors").format, Format::kFile);
  EXPECT_EQ(detect_format(data + "/torch/legacy.pt").format, Format::kFile);
  const test::TemporaryFolder adapter;
  std::filesystem::copy_file(data + "/hf_llama_tiny/model.safetensors", adapter / "adapter_model.safetensors");
  EXPECT_EQ(detect_format(adapter.path().string()).format, Format::kHuggingFace);
  EXPECT_EQ(detect_format(adapter.path().string()).rule, "adapter_model.safetensors");
  EXPECT_FALSE(open_source(adapter.path().string())->info().has_model);
}

TEST(DetectTest, DcpAndDeepSpeedWithoutConfigOpenUnderTheirOwnNames) {
  for (const char* folder : {"/dcp_fsdp", "/deepspeed/zero3", "/deepspeed/zero1_universal"}) {
    const auto source = open_source(std::string(MS_TEST_DATA) + folder);
    EXPECT_FALSE(source->info().has_model) << folder;
    EXPECT_GT(source->shards().num_tensors(), 10U) << folder;
  }
  OpenOptions options;
  options.hf_cfg_dir = std::string(MS_TEST_DATA) + "/dcp_fsdp/expected/param";
  EXPECT_TRUE(open_source(std::string(MS_TEST_DATA) + "/dcp_fsdp", options)->info().has_model);
}

TEST(DetectTest, ComparedSourcesAreOpenedTheSameWay) {
  const std::string folder = std::string(MS_TEST_DATA) + "/hf_llama_tiny";
  const auto with_family = open_comparable(folder, folder + "_bin");
  EXPECT_TRUE(with_family.first->info().has_model && with_family.second->info().has_model);
  const auto names = open_comparable(folder, folder + "/model.safetensors");
  EXPECT_FALSE(names.first->info().has_model || names.second->info().has_model);
  EXPECT_EQ(names.first->shards().num_tensors(), names.second->shards().num_tensors());
  OpenOptions as_named;
  as_named.as_named = true;
  EXPECT_THAT(test::thrown_by([&] { open_source(std::string(MS_TEST_DATA) + "/megatron_dist", as_named); }).text,
              HasSubstr("has no tensor names of its own to keep"));
}

}  // namespace
}  // namespace ms::convert
