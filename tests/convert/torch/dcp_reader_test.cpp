// Boxes and objects of a DCP checkpoint, and invalid metadata.
#include "convert/torch/dcp_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/error.h"
#include "kernels/bf16.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::Dims;
using core::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;

std::string data_folder() { return core::cat(MS_TEST_DATA, "/dcp"); }  // made by tests/data/make_dcp.py

// All elements of a tensor, with each chunk read in boxes of at most `step` along every axis.
template <class T>
std::vector<T> assembled(const DcpReader& reader, const char* key, int64_t step) {
  const DcpReader::Tensor& tensor = reader.tensors().at(key);
  std::vector<T> all(static_cast<size_t>(core::num_elements(tensor.shape)));
  for (const DcpReader::Chunk& chunk : tensor.chunks) {
    const size_t axes = chunk.extent.size();
    Dims at(axes, 0);
    for (bool more = core::num_elements(chunk.extent) > 0; more;) {
      Dims extent(axes);
      for (size_t axis = 0; axis < axes; ++axis) extent[axis] = std::min(step, chunk.extent[axis] - at[axis]);
      std::vector<T> box(static_cast<size_t>(core::num_elements(extent)));
      reader.read(tensor, chunk, at, extent, reinterpret_cast<std::byte*>(box.data()));
      for (size_t i = 0; i < box.size(); ++i) {
        size_t rest = i, index = 0;
        Dims inner(axes);
        for (size_t axis = axes; axis-- > 0;) {
          inner[axis] = static_cast<int64_t>(rest % static_cast<size_t>(extent[axis]));
          rest /= static_cast<size_t>(extent[axis]);
        }
        for (size_t axis = 0; axis < axes; ++axis) {
          index = index * static_cast<size_t>(tensor.shape[axis]) +
                  static_cast<size_t>(chunk.offset[axis] + at[axis] + inner[axis]);
        }
        all[index] = box[i];
      }
      more = false;
      for (size_t axis = axes; axis-- > 0 && !more;) {
        at[axis] += step;
        more = at[axis] < chunk.extent[axis];
        if (!more) at[axis] = 0;
      }
    }
  }
  return all;
}

std::vector<float> numbered(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(DcpReaderTest, ReadsEveryElement) {
  const DcpReader reader(data_folder());
  EXPECT_EQ(reader.tensors().at("model.rows").chunks.size(), 2u);
  EXPECT_THAT(reader.tensors().at("model.columns").chunks.at(1).offset, ElementsAre(0, 3));
  for (const int64_t step : {1, 2, 100}) {
    EXPECT_EQ(assembled<float>(reader, "model.rows", step), numbered(15)) << step;
    EXPECT_EQ(assembled<float>(reader, "model.cube", step), numbered(24)) << step;
    EXPECT_EQ(assembled<float>(reader, "model.whole", step), numbered(7)) << step;
    EXPECT_THAT(assembled<float>(reader, "model.turned", step), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
    EXPECT_THAT(assembled<float>(reader, "model.scalar", step), ElementsAre(5));
    EXPECT_THAT(assembled<int64_t>(reader, "model.count", step), ElementsAre(1, 2, 3));
    std::vector<float> columns;
    for (const uint16_t bits : assembled<uint16_t>(reader, "model.columns", step)) {
      columns.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
    }
    EXPECT_EQ(columns, numbered(24)) << step;
  }
  EXPECT_THAT(reader.tensors().at("model.empty").shape, ElementsAre(0, 2));
}

TEST(DcpReaderTest, ReadsObjects) {
  const DcpReader reader(data_folder());
  EXPECT_EQ(reader.open_object(reader.objects().at("step")).root().integer(), 7);
  EXPECT_TRUE(reader.objects().contains("betas") || reader.objects().contains("betas.0"));
}

class DamagedDcpTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(data_folder(), folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  std::string metadata() const { return test::read_file(folder_ / ".metadata"); }
  // Reads everything; returns the error, empty if there is none.
  std::string error_of() const {
    try {
      const DcpReader reader(folder_.path().string());
      for (const auto& [key, tensor] : reader.tensors()) {
        for (const DcpReader::Chunk& chunk : tensor.chunks) {
          std::vector<std::byte> out(static_cast<size_t>(core::num_elements(chunk.extent)) * 8);
          reader.read(tensor, chunk, Dims(chunk.extent.size(), 0), chunk.extent, out.data());
        }
      }
      for (const auto& [key, payload] : reader.objects()) reader.open_object(payload).root();
    } catch (const core::Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::kCorruptData || e.code() == ErrorCode::kUnsupported ||
                  e.code() == ErrorCode::kNotFound)
          << e.what();
      return e.what();
    }
    return "";
  }
  void change(const std::string& from, const std::string& to) {
    std::string bytes = metadata();
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    test::write_file(folder_ / ".metadata", bytes);
  }
  test::TemporaryFolder folder_;
};

TEST_F(DamagedDcpTest, MissingFileIsRefused) {
  EXPECT_EQ(error_of(), "");
  fs::remove(folder_ / "__1_0.distcp");
  EXPECT_THAT(error_of(), HasSubstr("__1_0.distcp"));
}

TEST_F(DamagedDcpTest, TruncatedFileIsRefused) {
  fs::resize_file(folder_ / "__0_0.distcp", fs::file_size(folder_ / "__0_0.distcp") - 1);
  EXPECT_THAT(error_of(), HasSubstr("the file ends at"));
}

TEST_F(DamagedDcpTest, FileOutsideTheFolderIsRefused) {
  change("\x0c__0_0.distcp", "\x0c../../x.dist");
  EXPECT_THAT(error_of(), HasSubstr("not a plain file name"));
}

TEST_F(DamagedDcpTest, MissingPayloadIsRefused) {
  change("model.whole", "model.w\nole");
  EXPECT_THAT(error_of(), HasSubstr("no payload for \"model.w\\x0aole\""));
  test::write_file(folder_ / ".metadata", "\x80\x04}.");
  EXPECT_THAT(error_of(), HasSubstr("not the metadata"));
}

TEST_F(DamagedDcpTest, FlippedMetadataBitsGiveOneLine) {
  const std::string good = metadata();
  for (size_t at = 0; at < good.size(); at += 11) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    test::write_file(folder_ / ".metadata", bytes);
    error_of();  // success or an error, never a crash
  }
  for (size_t size = 0; size < good.size(); size += 41) {
    test::write_file(folder_ / ".metadata", good.substr(0, size));
    EXPECT_NE(error_of(), "") << size;
  }
}

TEST_F(DamagedDcpTest, FlippedTensorBitIsFound) {
  const std::string path = folder_ / "__1_0.distcp", good = test::read_file(path);
  std::string bytes = good;
  const float value = 5;  // several storages contain the end of cube's second chunk: each has a CRC
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  test::write_file(path, bytes);
  EXPECT_THAT(error_of(), HasSubstr("CRC"));
}

}  // namespace
}  // namespace ms::convert
