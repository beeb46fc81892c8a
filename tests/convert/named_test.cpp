// Anything that contains named tensors opens without a family: folders, files, DCP, DeepSpeed, rank files. Anything
// else is refused in one line.
#include "convert/named.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/convert/tensors_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using core::TensorRole;
using testing::HasSubstr;

const std::string kData = MS_TEST_DATA;

std::unique_ptr<ckpt::Source> open(const std::string& path) {
  std::vector<std::string> decisions;
  return open_named(path, true, decisions);
}

test::TensorsOfSource tensors_in(const std::string& path) { return test::tensors_of(*open(path)); }

TEST(Named, FolderItsFilesAndItsOtherFormatsOpen) {
  const auto wanted = tensors_in(kData + "/hf_llama_tiny");
  EXPECT_GT(wanted.size(), 10U);
  EXPECT_TRUE(wanted.contains({TensorRole::kParam, "model.embed_tokens.weight"}));
  EXPECT_EQ(test::first_difference(tensors_in(kData + "/hf_llama_tiny_bin"), wanted), "");
  EXPECT_EQ(test::first_difference(tensors_in(kData + "/hf_llama_tiny/model.safetensors"), wanted), "");
  const std::string one = kData + "/hf_llama_tiny_bin/pytorch_model-00001-of-00002.bin";
  for (const auto& [key, tensor] : tensors_in(one)) EXPECT_EQ(tensor.bytes, wanted.at(key).bytes) << key.second;
}

TEST(Named, SignNamesTheFolder) {
  const auto source = open(kData + "/hf_llama_tiny");
  EXPECT_FALSE(source->info().has_model);
  EXPECT_EQ(source->info().model_extra.at("model_type"), "llama");
  EXPECT_EQ(named_sign(kData + "/hf_llama_tiny"), "model.safetensors");
  EXPECT_EQ(named_sign(kData + "/hf_llama_tiny_sharded"), "model.safetensors.index.json");
  EXPECT_EQ(named_sign(kData + "/hf_llama_tiny/model.safetensors"), "a safetensors file");
  EXPECT_EQ(named_sign(kData + "/torch/state_dict.pt"), "a torch.save file");
  EXPECT_EQ(named_sign(kData + "/torch/legacy.pt"), "a torch.save file before 1.6");
  EXPECT_EQ(named_sign(kData + "/dcp_fsdp"), ".metadata of PyTorch DCP");
  EXPECT_EQ(named_sign(kData + "/fsdp_ranks/tp_4"), "model_world_size_4_rank_0.pt");
  EXPECT_EQ(named_sign(kData + "/hf_llama_tiny/config.json"), "");
  EXPECT_EQ(named_sign(kData + "/megatron"), "");
}

TEST(Named, DeepSpeedOpensWithoutConfig) {
  for (const char* name : {"zero1", "zero2", "zero3", "zero1_universal", "zero3_universal"}) {
    std::vector<std::string> decisions;
    const auto source = open_named(cat(kData, "/deepspeed/", name), false, decisions);
    EXPECT_FALSE(source->info().has_model) << name;
    EXPECT_TRUE(ckpt::has_role(*source, TensorRole::kExpAvg)) << name;
    EXPECT_EQ(source->info().iteration, 3) << name;
  }
  const auto zero3 = open(kData + "/deepspeed/zero3");
  const auto wanted = tensors_in(kData + "/deepspeed/expected/zero3/param");
  auto seen = test::tensors_of(*zero3);
  const auto tied = seen.extract({TensorRole::kParam, "lm_head.weight"});  // shared_params names it
  ASSERT_FALSE(tied.empty());
  EXPECT_EQ(tied.mapped().bytes, wanted.at({TensorRole::kParam, "model.embed_tokens.weight"}).bytes);
  EXPECT_EQ(test::first_difference(seen, wanted), "");
}

class NamedFolder : public testing::Test {
 protected:
  void copy(const std::string& from, const std::string& to) { fs::copy_file(kData + "/" + from, folder_ / to); }
  void expect_refused(const std::string& path, ErrorCode code, const std::string& text) {
    const test::Thrown thrown = test::thrown_by([&] { open(path); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(text));
    EXPECT_THAT(thrown.text, testing::Not(HasSubstr("\n")));
  }
  std::string path() const { return folder_.path().string(); }
  test::TemporaryFolder folder_;
};

TEST_F(NamedFolder, AdapterDiffusersAndOtherFilesOpen) {
  for (const char* name :
       {"adapter_model.safetensors", "diffusion_pytorch_model.safetensors", "whatever.safetensors"}) {
    copy("hf_llama_tiny/model.safetensors", name);
    EXPECT_EQ(named_sign(path()), name);
    EXPECT_EQ(test::first_difference(tensors_in(path()), tensors_in(kData + "/hf_llama_tiny")), "");
    fs::remove(folder_ / name);
  }
  copy("torch/state_dict.pt", "adapter_model.bin");
  EXPECT_EQ(test::first_difference(tensors_in(path()), tensors_in(kData + "/torch/state_dict.pt")), "");
}

TEST_F(NamedFolder, FilesWithoutAnIndexAreReadTogether) {
  for (const char* part :
       {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"}) {
    copy(cat("hf_llama_tiny_sharded/", part), part);
  }
  EXPECT_EQ(test::first_difference(tensors_in(path()), tensors_in(kData + "/hf_llama_tiny_sharded")), "");
}

TEST_F(NamedFolder, TensorInTwoFilesIsRefused) {
  copy("hf_llama_tiny/model.safetensors", "a.safetensors");
  copy("hf_llama_tiny/model.safetensors", "b.safetensors");
  expect_refused(path(), ErrorCode::kCorruptData, "give the path of one of the files");
}

TEST_F(NamedFolder, TwoIndicesAreRefused) {
  copy("hf_llama_tiny_sharded/model.safetensors.index.json", "a.safetensors.index.json");
  copy("hf_llama_tiny_sharded/model.safetensors.index.json", "b.safetensors.index.json");
  expect_refused(path(), ErrorCode::kInvalidArgument, "2 indices");
}

TEST_F(NamedFolder, ConfigInSubfolderOfRankFilesIsFound) {
  fs::create_directory(folder_ / "huggingface");
  copy("hf_llama_tiny/config.json", "huggingface/config.json");
  EXPECT_EQ(config_folder_of(path()), folder_ / "huggingface");
  EXPECT_EQ(config_folder_of(kData + "/fsdp_ranks"), "");
}

TEST_F(NamedFolder, EmptyFolderIsRefused) {
  expect_refused(path(), ErrorCode::kNotFound, "contains no named tensors");
  expect_refused(folder_ / "absent", ErrorCode::kNotFound, "no such file or folder");
  test::write_file(folder_ / "text.pt", "hello");
  expect_refused(folder_ / "text.pt", ErrorCode::kNotFound, "no named tensors");
  test::write_file(folder_ / "model.safetensors", "");
  expect_refused(path(), ErrorCode::kCorruptData, "model.safetensors");
}

TEST_F(NamedFolder, LinkToItselfIsRefused) {
  fs::create_symlink("model.safetensors", folder_ / "model.safetensors");
  const test::Thrown thrown = test::thrown_by([&] { open(path()); });
  EXPECT_NE(thrown.code, ErrorCode::kInternal) << thrown.text;
  EXPECT_THAT(thrown.text, HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace ms::convert
