#include "convert/hf_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<size_t>;

TEST(SplitBySize, FillsFilesInOrderAndSeparatesLargeTensors) {
  const std::vector<int64_t> sizes = {4, 3, 3, 20, 4, 9};
  const HfSplit split = split_by_size(sizes, 10, kHfSafetensors);
  EXPECT_EQ(split.file_of, (Numbers{1, 1, 1, 0, 2, 3}));  // 20 does not close the file being filled
  EXPECT_EQ(split.files.size(), 4U);
  EXPECT_EQ(split.files[3], "model-00004-of-00004.safetensors");
}

TEST(SplitBySize, SingleFileHasNoNumber) {
  const std::vector<int64_t> sizes = {4, 6};
  EXPECT_THAT(split_by_size(sizes, 10, kHfSafetensors).files, ElementsAre("model.safetensors"));
  EXPECT_TRUE(split_by_size({}, 10, kHfSafetensors).files.empty());
}

class SplitOfIndex : public ::testing::Test {
 protected:
  std::optional<HfSplit> of(const std::string& index) const {
    test::write_file(folder_ / "model.safetensors.index.json", index);
    return split_of_index(folder_.path().string(), names_, kHfSafetensors);
  }
  test::TemporaryFolder folder_;
  const std::vector<std::string> names_ = {"a", "b", "c"};
};

TEST_F(SplitOfIndex, SameNamesGiveTheIndexsFiles) {
  const auto split =
      of(R"({"weight_map": {"c": "model-1.safetensors", "a": "model-2.safetensors", "b": "model-1.safetensors"}})");
  ASSERT_TRUE(split.has_value());
  EXPECT_THAT(split->files, ElementsAre("model-1.safetensors", "model-2.safetensors"));
  EXPECT_EQ(split->file_of, (Numbers{1, 0, 0}));
}

TEST_F(SplitOfIndex, OtherNamesOrFilesAreIgnored) {
  EXPECT_FALSE(split_of_index(folder_.path().string(), names_, kHfSafetensors)) << "no index";
  EXPECT_FALSE(split_of_index("", names_, kHfSafetensors));
  EXPECT_FALSE(of(R"({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}})"));
  EXPECT_FALSE(of(R"({"weight_map": {"a": "model.safetensors", "b": "model.safetensors", "x": "model.safetensors"}})"));
  for (const char* file : {"../model.safetensors", "model/../../x.safetensors", "model.bin", "", "config.json"}) {
    EXPECT_FALSE(
        of(core::cat(R"({"weight_map": {"a": "model.safetensors", "b": "model.safetensors", "c": ")", file, "\"}}")))
        << file;
  }
  EXPECT_FALSE(of(R"({"weight_map": {"a": "model.safetensors", "b": "model.safetensors", "c": 3}})"));
}

TEST_F(SplitOfIndex, DamagedIndexIsAnError) {
  for (const char* text : {"{", "[]", "{}", R"({"weight_map": []})"}) {
    EXPECT_EQ(test::code_of([&] { of(text); }), core::ErrorCode::kCorruptData) << text;
  }
}

}  // namespace
}  // namespace ms::convert
