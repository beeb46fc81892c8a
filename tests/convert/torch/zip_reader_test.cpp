// Entries of an archive of torch.save, each checked by its CRC.
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

TEST_F(ZipReaderTest, EntriesInTheOrderOfTheFile) {
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

TEST_F(ZipReaderTest, TwoEntriesOfOneName) {
  // The second of two names of one length, in its directory entry and before its data.
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

TEST_F(ZipReaderTest, PackedEntriesAreUnsupported) {
  std::string bytes = good_;
  bytes[bytes.find("PK\1\2") + 10] = 8;  // deflate
  EXPECT_EQ(opening(bytes).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ms::convert
