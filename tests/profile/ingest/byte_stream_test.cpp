// Compressed files whose gzip header reaches the decompressor in parts.
#include "profile/ingest/byte_stream.h"

#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

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
  const auto stream = open_bytes(path, stats, 1);
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

// Keeps the first text that is lent ahead.
class FirstAhead final : public AheadReader {
 public:
  void expect(int64_t) override {}
  void read_ahead(std::span<char> text, int64_t offset) override {
    const std::lock_guard lock(mutex_);
    if (offset_ < 0) {
      offset_ = offset;
      text_.assign(text.begin(), text.end());
    }
    called_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    called_.wait(lock, [&] { return offset_ >= 0; });
  }
  int64_t offset() const { return offset_; }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  int64_t offset_ = -1;
  std::string text_;
};

TEST(GzipStream, TextThatIsNotReadYetIsLentAhead) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "file.gz";
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += std::to_string(i);
  test::write_file(path, gzip_member(text, "name"));
  ImportStats stats;
  const auto stream = open_bytes(path, stats, 2);
  FirstAhead reader;
  stream->lend_ahead(&reader);
  reader.wait();  // the stream is read by nobody, so all its blocks get full
  stream->lend_ahead(nullptr);
  ASSERT_LT(reader.offset(), std::ssize(text));
  EXPECT_GT(reader.offset(), 0) << "the first block is the reader's";
  EXPECT_EQ(reader.text(), text.substr(static_cast<size_t>(reader.offset()), reader.text().size()));
  std::string read;
  for (std::span<char> loan = stream->lend(); !loan.empty(); loan = stream->lend())
    read.append(loan.begin(), loan.end());
  EXPECT_EQ(read, text);
}

TEST(GzipStream, ReaderThatComesLateIsLentTextToo) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "file.gz", text(4 << 20, 'x');
  test::write_file(path, gzip_member(text, "name"));
  ImportStats stats;
  const auto stream = open_bytes(path, stats, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // long enough for the thread to fill its blocks and wait
  FirstAhead reader;
  stream->lend_ahead(&reader);
  reader.wait();
  stream->lend_ahead(nullptr);
  EXPECT_GT(reader.text().size(), 0U);
}

}  // namespace
}  // namespace ms::profile
