#include "convert/torch/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::string data_file(const char* name) { return core::cat(MS_TEST_DATA, "/torch/", name); }

std::map<std::string, PickleValue> members(PickleValue dict) {
  std::map<std::string, PickleValue> found;
  for (const auto& [key, value] : dict.pairs()) found.emplace(std::string(key.text()), value);
  return found;
}

template <class T>
std::vector<T> values(const TorchFile& file, const TorchTensor& tensor, uint64_t first = 0) {
  std::vector<T> out(tensor.elements() - first);
  file.read(tensor, first, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(TorchFileTest, ReadsTensorsOfTorch) {
  for (const char* name : {"state_dict.pt", "protocol4.pt"}) {  // made by tests/data/make_torch_files.py
    SCOPED_TRACE(name);
    const TorchFile file(data_file(name));
    const auto all = members(file.root());
    const auto get = [&](const char* key) { return *file.tensor(all.at(key)); };
    EXPECT_THAT(values<float>(file, get("float32")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<double>(file, get("float64")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<int64_t>(file, get("int64")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<int16_t>(file, get("int16")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<int8_t>(file, get("int8")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<uint8_t>(file, get("uint8")), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(values<uint16_t>(file, get("bfloat16")), ElementsAre(0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0));
    EXPECT_EQ(get("float16").dtype, SafetensorsDType::kF16);
    EXPECT_EQ(get("bool").dtype, SafetensorsDType::kBool);
    EXPECT_THAT(get("float32").shape, ElementsAre(2, 3));
    EXPECT_EQ(get("base").record, get("tied").record);
    EXPECT_THAT(values<float>(file, get("rows")), ElementsAre(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
    EXPECT_TRUE(get("rows").is_dense());
    EXPECT_FALSE(get("columns").is_dense());
    EXPECT_THAT(values<float>(file, get("columns")), ElementsAre(2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22));
    EXPECT_THAT(values<float>(file, get("columns"), 7), ElementsAre(15, 16, 20, 21, 22));
    std::vector<float> turned;
    for (int column = 0; column < 6; ++column) {
      for (int row = 0; row < 4; ++row) turned.push_back(static_cast<float>(6 * row + column));
    }
    EXPECT_THAT(values<float>(file, get("turned")), ElementsAreArray(turned));
    EXPECT_THAT(values<float>(file, get("repeated")), ElementsAre(0, 1, 2, 0, 1, 2));
    EXPECT_TRUE(get("scalar").shape.empty());
    EXPECT_THAT(values<float>(file, get("scalar")), ElementsAre(7));
    EXPECT_EQ(get("empty").elements(), 0u);
    EXPECT_THAT(values<float>(file, get("parameter")), ElementsAre(0, 1, 2));
  }
}

TEST(TorchFileTest, ReadsNonTensorValues) {
  const TorchFile file(data_file("nested.pt"));
  const auto all = members(file.root());
  EXPECT_EQ(all.at("iteration").integer(), 100);
  EXPECT_EQ(all.at("negative").integer(), -5);
  EXPECT_TRUE(all.at("none").is(PickleKind::kNone));
  EXPECT_TRUE(all.at("big").is(PickleKind::kLong));
  EXPECT_TRUE(file.tensor(members(all.at("model")).at("float32")).has_value());
  EXPECT_FALSE(file.tensor(all.at("iteration")).has_value());
  ASSERT_TRUE(all.at("args").is_call_of("argparse", "Namespace"));
  const auto args = members(*all.at("args").state());
  EXPECT_EQ(args.at("num_layers").integer(), 2);
  EXPECT_EQ(args.at("lr").real(), 1e-3);
  EXPECT_TRUE(args.at("params_dtype").is_symbol("torch", "bfloat16"));
}

class DamagedTorchFileTest : public testing::Test {
 protected:
  // Reads everything in such a file and returns the error; empty if there is none.
  std::string error_of(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      const TorchFile file(path_);
      for (const auto& [key, value] : file.root().pairs()) {
        const auto tensor = file.tensor(value);
        if (!tensor || tensor->size_bytes() > 1 << 20) continue;
        std::vector<std::byte> out(tensor->size_bytes());
        file.read(*tensor, 0, out);
        key.text();
      }
    } catch (const core::Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::kCorruptData || e.code() == ErrorCode::kUnsupported) << e.what();
      EXPECT_FALSE(std::string(e.what()).empty());
      return e.what();
    }
    return "";
  }
  std::string with(const std::string& from, const std::string& to) const {
    std::string bytes = good_;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return bytes.replace(at, from.size(), to);
  }
  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "damaged.pt";
  std::string good_ = test::read_file(data_file("state_dict.pt"));
};

TEST_F(DamagedTorchFileTest, FlippedStorageByteIsFound) {
  EXPECT_EQ(error_of(good_), "");
  const TorchFile file(data_file("state_dict.pt"));
  int flipped = 0;
  for (const ZipReader::Entry& entry : file.archive().entries()) {
    if (entry.name.find("/data/") == std::string::npos && !entry.name.ends_with("data.pkl")) continue;
    for (int64_t at = entry.at; at<entry.at + entry.bytes; at += entry.bytes> 200 ? 13 : 1, ++flipped) {
      std::string bytes = good_;
      bytes[static_cast<size_t>(at)] = static_cast<char>(bytes[static_cast<size_t>(at)] ^ 0x04);
      EXPECT_THAT(error_of(bytes), HasSubstr("CRC")) << entry.name << " " << at;
    }
  }
  EXPECT_GT(flipped, 80);
}

TEST_F(DamagedTorchFileTest, TruncatedFileIsRefused) {
  for (size_t size = 0; size < good_.size(); size += 31) EXPECT_NE(error_of(good_.substr(0, size)), "") << size;
}

TEST_F(DamagedTorchFileTest, FlippedDirectoryBitIsHarmless) {
  const size_t begin = good_.find("PK\1\2");
  ASSERT_NE(begin, std::string::npos);
  for (size_t at = begin; at < good_.size(); at += 3) {
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    error_of(bytes);  // success or an error, never a crash
  }
}

// A tensor by the arguments of _rebuild_tensor_v2, in storage 0.
struct View {
  const char* type = "FloatStorage";
  int32_t numel = 6, offset = 0;
  std::vector<int32_t> shape = {2, 3}, stride = {3, 1};
};

std::string pickle_of(const std::vector<View>& views) {
  const auto text = [](const std::string& value) {
    return std::string("X") + static_cast<char>(value.size()) + std::string(3, '\0') + value;
  };
  const auto integer = [](int32_t value) {
    std::string bytes = "J";
    for (int byte = 0; byte < 4; ++byte) bytes += static_cast<char>(static_cast<uint32_t>(value) >> (8 * byte));
    return bytes;
  };
  const auto tuple = [&](const std::vector<int32_t>& values) {
    std::string bytes = "(";
    for (const int32_t value : values) bytes += integer(value);
    return bytes + "t";
  };
  std::string bytes = "\x80\x02}(";
  for (size_t v = 0; v < views.size(); ++v) {
    const View& view = views[v];
    bytes += text("w" + std::to_string(v)) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" +
             view.type + "\n" + text("0") + text("cpu") + integer(view.numel) + "tQ" + integer(view.offset) +
             tuple(view.shape) + tuple(view.stride) + "\x89" + "ccollections\nOrderedDict\n)RtR";
  }
  return bytes + "u.";
}

TEST_F(DamagedTorchFileTest, ViewsOutsideTheirStorageAreRefused) {
  const auto error = [&](const std::vector<View>& views) {
    return error_of(make_torch_archive(pickle_of(views), std::vector<std::string>{std::string(24, 'a')}));
  };
  EXPECT_EQ(error({{}}), "");
  EXPECT_EQ(error({{}, {.shape = {3, 2}, .stride = {1, 3}}}), "") << "a storage that two views share, one turned";
  EXPECT_THAT(error({{.offset = -1}}), HasSubstr("begins before its storage"));
  EXPECT_THAT(error({{.offset = 1}}), HasSubstr("reaches element 6"));
  EXPECT_THAT(error({{.stride = {4, 1}}}), HasSubstr("reaches element 6"));
  EXPECT_THAT(error({{.stride = {INT32_MAX, INT32_MAX}}}), HasSubstr("reaches element"));
  EXPECT_NE(error({{.stride = {-3, 1}}}), "");
  EXPECT_NE(error({{.shape = {-2, 3}}}), "");
  EXPECT_NE(error({{.shape = {INT32_MAX, INT32_MAX, INT32_MAX}, .stride = {0, 0, 0}}}), "");
  EXPECT_THAT(error({{.shape = {2}}}), HasSubstr("different numbers of sizes and strides"));
  EXPECT_THAT(error({{.numel = 7}}), HasSubstr("should have 7 elements"));
  EXPECT_NE(error({{.numel = -1}}), "");
  EXPECT_THAT(error({{}, {.type = "IntStorage"}}), HasSubstr("is viewed with two element types"));
}

TEST_F(DamagedTorchFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(error_of("hello"), HasSubstr("not a ZIP archive"));
  EXPECT_THAT(error_of(""), HasSubstr("not a ZIP archive"));
}

}  // namespace
}  // namespace ms::convert
