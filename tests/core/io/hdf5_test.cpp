#include "core/io/hdf5.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

class Hdf5Test : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }

  void write(const std::string& path) {
    H5File file = H5File::create(path);
    file.create_group("/model");
    offset_ = file.create_dataset("/model/x", DType::kFp32, {100, 400});
    file.create_attribute("/model/x", "dtype", std::string("fp32"));
    file.create_attribute("/model/x", "shape", std::vector<int64_t>{100, -400});
    file.create_attribute("/model/x", "none", std::vector<int64_t>{});
    file.create_attribute("/model/x", "hashes", std::vector<uint64_t>(3));
    file.create_dataset("/model/half", DType::kFp16, {});
    file.close();
    std::vector<float> values(100 * 400, 1.5f);
    File::open_write(path).pwrite(std::as_bytes(std::span(values)), offset_);
  }

  test::TemporaryFolder folder_;
  int64_t offset_ = 0;
};

TEST_F(Hdf5Test, CreatedDatasetsAndAttributesReadBack) {
  write(at("a"));
  EXPECT_EQ(offset_ % 4096, 0);
  {
    H5File file = H5File::open_write(at("a"));
    file.overwrite_attribute("/model/x", "hashes", std::vector<uint64_t>{7, 8, UINT64_MAX});
    file.close();
  }
  const H5File file = H5File::open_read(at("a"));
  const auto info = file.dataset("/model/x");
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->shape, (Dims{100, 400}));
  EXPECT_EQ(info->dtype, DType::kFp32);
  EXPECT_EQ(info->offset, offset_);
  EXPECT_EQ(file.dataset("/model/half")->dtype, DType::kFp16);
  EXPECT_EQ(file.dataset("/model/half")->shape, Dims{});
  EXPECT_EQ(file.attribute_text("/model/x", "dtype"), "fp32");
  EXPECT_EQ(file.attribute_values("/model/x", "hashes"), (std::vector<uint64_t>{7, 8, UINT64_MAX}));
  EXPECT_EQ(file.attribute_values("/model/x", "shape"), (std::vector<uint64_t>{100, static_cast<uint64_t>(-400)}));
  EXPECT_EQ(file.attribute_values("/model/x", "none"), std::vector<uint64_t>{});
  EXPECT_FALSE(file.dataset("/model/y").has_value());
  EXPECT_FALSE(file.attribute_values("/model/x", "y").has_value());
  EXPECT_FALSE(file.attribute_text("/nothing", "y").has_value());
}

TEST_F(Hdf5Test, FilesContainNoTimestamps) {
  write(at("a"));
  ::usleep(1100000);
  write(at("b"));
  EXPECT_EQ(test::read_file(at("a")), test::read_file(at("b")));
}

TEST_F(Hdf5Test, NonHdf5FileIsCorruptData) {
  std::ofstream(at("a")) << "hello";
  EXPECT_EQ(test::code_of([&] { H5File::open_read(at("a")); }), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::core
