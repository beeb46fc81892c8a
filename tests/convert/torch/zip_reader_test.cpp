// Entries of a torch.save archive, each checked by its CRC.
#include "convert/torch/zip_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::HasSubstr;

class ZipReaderTest : public testing::Test {
 protected:
  test::Thrown opening(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return test::thrown_by([&] { ZipReader reader(ArchiveRange::whole(path_)); });
  }
  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "archive.zip";
  std::string good_ = test::read_file(core::cat(MS_TEST_DATA, "/torch/state_dict.pt"));
};

TEST_F(ZipReaderTest, EntriesAreInFileOrder) {
  std::ofstream(path_, std::ios::binary) << good_;
  const ZipReader reader(ArchiveRange::whole(path_));
  int64_t end = 0;
  for (const ZipReader::Entry& entry : reader.entries()) {
    EXPECT_GT(entry.at, end) << "a local header between, " << entry.name;
    end = entry.at + entry.bytes;
    const auto index = reader.find(entry.name);
    ASSERT_TRUE(index.has_value());
    const std::string all = reader.read_all(*index, 1 << 20);
    EXPECT_EQ(all, good_.substr(static_cast<size_t>(entry.at), static_cast<size_t>(entry.bytes)));
    if (entry.bytes < 2) continue;
    std::string last(1, ' ');
    reader.read(*index, entry.bytes - 1, std::as_writable_bytes(std::span(last)));
    EXPECT_EQ(last[0], all.back());
    EXPECT_EQ(test::thrown_by([&] { reader.read_all(*index, entry.bytes - 1); }).code, ErrorCode::kCorruptData);
  }
  EXPECT_FALSE(reader.find("archive/no such entry").has_value());
}

TEST_F(ZipReaderTest, DuplicateNamesAreRefused) {
  // Changes the second of two names of the same length, in its directory entry and before its data.
  std::string bytes = good_;
  for (size_t at = bytes.find("/data/1"); at != std::string::npos; at = bytes.find("/data/1", at + 1)) {
    if (bytes[at + 7] != 'P' && bytes[at + 7] != 'F') continue;  // a longer name
    bytes[at + 6] = '0';
  }
  ASSERT_NE(bytes, good_);
  const test::Thrown thrown = opening(bytes);
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("data/0"));
}

TEST_F(ZipReaderTest, CompressedEntriesAreUnsupported) {
  std::string bytes = good_;
  bytes[bytes.find("PK\1\2") + 10] = 8;  // deflate
  EXPECT_EQ(opening(bytes).code, ErrorCode::kUnsupported);
}

// The directory's offsets must agree with the local headers.
TEST_F(ZipReaderTest, OverlappingEntriesAreRefused) {
  std::string bytes = good_;
  const size_t first = bytes.find("PK\1\2"), second = bytes.find("PK\1\2", first + 1);
  ASSERT_NE(second, std::string::npos);
  bytes.replace(second + 42, 4, bytes.substr(first + 42, 4));  // both begin at the first
  const test::Thrown same = opening(bytes);
  EXPECT_EQ(same.code, ErrorCode::kCorruptData);
  EXPECT_THAT(same.text, HasSubstr("it overlaps the next"));
  bytes = good_;
  bytes[second + 24] = static_cast<char>(bytes[second + 24] + 100);  // of the sizes, compressed and uncompressed
  bytes[second + 20] = static_cast<char>(bytes[second + 20] + 100);
  EXPECT_THAT(opening(bytes).text, HasSubstr("it overlaps the next"));
}

TEST_F(ZipReaderTest, WrongLocalHeadersAreRefused) {
  std::string bytes = good_;
  bytes[30] = static_cast<char>(bytes[30] ^ 1);  // the first letter of the first name
  EXPECT_THAT(opening(bytes).text, HasSubstr("its local header has another name"));
  bytes = good_;
  bytes[0] = 'Q';
  EXPECT_THAT(opening(bytes).text, HasSubstr("no local header there"));
}

TEST_F(ZipReaderTest, InvalidCountsAndNamesAreRefused) {
  std::string bytes = good_;
  const size_t end64 = bytes.find("PK\6\6"), end = bytes.rfind("PK\5\6");
  ASSERT_NE(end64, std::string::npos);
  for (const size_t field : {end64 + 24, end64 + 32, end64 + 40, end64 + 48}) {  // entries, bytes, offset
    for (const char value : {'\x7f', '\xff'}) {
      std::string lie = good_;
      lie.replace(field, 8, std::string(7, '\xff') + value);
      if (field == end64 + 24) lie.replace(end64 + 32, 8, std::string(7, '\xff') + value);
      EXPECT_EQ(opening(lie).code, ErrorCode::kCorruptData) << field - end64;
    }
  }
  bytes.erase(end64, end - end64);  // only the old end record
  bytes.replace(bytes.size() - 12, 2, "\xff\xff");
  EXPECT_EQ(opening(bytes).code, ErrorCode::kCorruptData);
  std::string upwards = good_;
  for (size_t at = upwards.find("state_dict/version"); at != std::string::npos;
       at = upwards.find("state_dict/version", at + 1)) {
    upwards.replace(at, 18, "state_dict/../pass");
  }
  ASSERT_NE(upwards, good_);
  EXPECT_THAT(opening(upwards).text, HasSubstr("its name is invalid"));
}

}  // namespace
}  // namespace ms::convert
