// Which files of a folder contain its weights.
#include "convert/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using testing::HasSubstr;

TEST(WeightFiles, ModelSafetensorsAreFoundFirst) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_FALSE(find_weight_files(path).has_value());
  for (const char* name : {"z.safetensors", "adapter_model.bin", "pytorch_model.bin.index.json", "pytorch_model.bin",
                           "model.safetensors.index.json", "model.safetensors"}) {
    test::write_file(folder / name, "");
    const auto found = find_weight_files(path);
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_EQ(found->rule(), name);
    EXPECT_EQ(found->torch, std::string(name).find(".bin") != std::string::npos) << name;
  }
  fs::remove(folder / "model.safetensors");
  fs::remove(folder / "model.safetensors.index.json");
  EXPECT_EQ(find_model_files(path)->rule(), "pytorch_model.bin");
}

TEST(WeightFiles, AdapterIsNotAModel) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "adapter_model.safetensors", "");
  EXPECT_FALSE(find_model_files(folder.path().string()).has_value());
  EXPECT_TRUE(find_weight_files(folder.path().string()).has_value());
}

TEST(WeightFiles, LinkOutOfTheFolderIsRefused) {
  const test::TemporaryFolder folder, elsewhere;
  fs::copy_file(MS_TEST_DATA "/hf_llama_tiny/model.safetensors", elsewhere / "x.safetensors");
  fs::create_symlink(elsewhere / "x.safetensors", folder / "model.safetensors");
  const test::Thrown thrown = test::thrown_by([&] {
    open_weight_files(folder.path().string(), *find_weight_files(folder.path().string()), OtherEntries::kRefused);
  });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("is a link out of the folder"));
}

TEST(WeightFiles, DanglingLinkIsFound) {
  const test::TemporaryFolder folder;
  fs::create_symlink("absent", folder / "model.safetensors");
  const auto found = find_weight_files(folder.path().string());
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(test::thrown_by([&] { open_weight_files(folder.path().string(), *found, OtherEntries::kRefused); }).text,
              HasSubstr("does not exist"));
}

}  // namespace
}  // namespace ms::convert
