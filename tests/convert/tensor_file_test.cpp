// A safetensors file through the interface shared by all files of named tensors.
#include "convert/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using testing::ElementsAre;

TEST(TensorFileTest, SafetensorsAreReadByName) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1,3],"data_offsets":[8,20]}})";
  const uint64_t size = header.size();
  const std::vector<float> values = {1, 2, 3, 4, 5};
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&size), sizeof size)
      << header << std::string_view(reinterpret_cast<const char*>(values.data()), 20);
  const auto file = open_safetensors(path);
  EXPECT_EQ(file->path(), path);
  ASSERT_EQ(file->size(), 2u);
  const auto index = file->find("b");
  ASSERT_TRUE(index.has_value());
  EXPECT_FALSE(file->find("c").has_value());
  const TensorFile::Tensor b = (*file)[*index];
  EXPECT_EQ(b.name, "b");
  EXPECT_THAT(b.shape, ElementsAre(1, 3));
  std::vector<float> two(2);
  file->read(b.begin + sizeof(float), std::as_writable_bytes(std::span(two)));
  EXPECT_THAT(two, ElementsAre(4, 5));
}

TEST(TensorFileTest, MissingFileIsReported) {
  EXPECT_EQ(test::thrown_by([] { open_safetensors("/no/such/model.safetensors"); }).code, core::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::convert
