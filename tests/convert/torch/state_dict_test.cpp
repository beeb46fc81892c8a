// pytorch_model.bin as a file of named tensors.
#include "convert/torch/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;

std::string data_file(const char* name) { return core::cat(MS_TEST_DATA, "/torch/", name); }

TEST(StateDictTest, ReadsAsOneRunOfBytes) {
  const auto file = open_state_dict(data_file("state_dict.pt"));
  const auto index = file->find("columns");
  ASSERT_TRUE(index.has_value());
  const TensorFile::Tensor tensor = (*file)[*index];
  EXPECT_THAT(tensor.shape, ElementsAre(4, 3));
  std::vector<float> row(3);
  file->read(tensor.begin + 3 * sizeof(float), std::as_writable_bytes(std::span(row)));
  EXPECT_THAT(row, ElementsAre(8, 9, 10));
  EXPECT_FALSE(file->find("column").has_value());
}

TEST(StateDictTest, SomethingElseThanTensorsIsNamed) {
  const test::Thrown thrown = test::thrown_by([] { open_state_dict(data_file("nested.pt")); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("args"));
}

}  // namespace
}  // namespace ms::convert
