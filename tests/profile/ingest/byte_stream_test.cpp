// Compressed files whose gzip header reaches the decompressor in parts.
#include "profile/ingest/byte_stream.h"

#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>

#include <cstring>
#include <string>

#include "profile/import_stats.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

// A gzip member of `text`, with the file name in its header that gzip(1) stores.
std::string gzip_member(const std::string& text, const std::string& name) {
  isal_zstream stream;
  isal_deflate_stateless_init(&stream);
  std::string packed(text.size() + 1000, '\0'), in = text;
  stream.next_in = reinterpret_cast<uint8_t*>(in.data());
  stream.avail_in = static_cast<uint32_t>(in.size());
  stream.next_out = reinterpret_cast<uint8_t*>(packed.data());
  stream.avail_out = static_cast<uint32_t>(packed.size());
  stream.end_of_stream = 1;
  stream.gzip_flag = IGZIP_GZIP;
  EXPECT_EQ(isal_deflate_stateless(&stream), COMP_OK);
  packed.resize(stream.total_out);
  packed[3] = 8;  // FNAME
  return packed.insert(10, name + '\0');
}

// Leaves bytes on the stack that a function which forgets to initialise its variables picks up.
[[gnu::noinline]] void scribble_on_stack() {
  volatile char bytes[16384];
  for (volatile char& byte : bytes) byte = '\x5a';
}

std::string read_all(const std::string& path, ImportStats& stats) {
  std::string text, block(1000, '\0');
  scribble_on_stack();
  const auto stream = open_bytes(path, stats, false);
  for (size_t got = 1; got > 0; text.append(block, 0, got)) {
    scribble_on_stack();
    got = stream->read(block.data(), block.size());
  }
  return text;
}

// The first read of a file is of a few bytes, later ones of 64 KiB: these headers end inside the first, the second and
// the third read.
TEST(GzipStream, AHeaderThatComesInSeveralReadsIsSkipped) {
  const test::TemporaryFolder folder;
  for (const size_t name_bytes : {3, 40, 100'000}) {
    const std::string path = folder / "file.gz", text(5000, 'x');
    test::write_file(path, gzip_member(text, std::string(name_bytes, 'n')));
    ImportStats stats;
    EXPECT_EQ(read_all(path, stats), text) << name_bytes;
    EXPECT_TRUE(stats.issues().empty()) << name_bytes;
  }
}

TEST(GzipStream, AHeaderThatIsCutCountsAsTruncated) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "file.gz";
  test::write_file(path, gzip_member("text", std::string(40, 'n')).substr(0, 30));
  ImportStats stats;
  EXPECT_EQ(read_all(path, stats), "");
  EXPECT_EQ(stats.issues().count("truncated"), 1u);
}

TEST(GzipStream, MembersWithLongNamesAreOneText) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "file.gz", name(200, 'n');
  test::write_file(path, gzip_member("one ", name) + gzip_member("two", name));
  ImportStats stats;
  EXPECT_EQ(read_all(path, stats), "one two");
  EXPECT_TRUE(stats.issues().empty());
}

}  // namespace
}  // namespace ms::profile
