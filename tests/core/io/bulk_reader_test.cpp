#include "core/io/bulk_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class BulkReaderTest : public testing::Test {
 protected:
  // 33 MiB and a few bytes, none of them in the page cache.
  BulkReaderTest() : bytes_(33 * kMiB + 77) {
    uint32_t state = 1;
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    const File file = File::create(path_);
    file.pwrite(bytes_, 0);
    file.fsync();
    forget();
  }
  void forget() const {
    const File file = File::open_read(path_);
    ASSERT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  void expect_part(const BulkReader& reader, size_t offset, size_t size, std::byte* out) const {
    reader.read({out, size}, static_cast<int64_t>(offset));
    EXPECT_TRUE(std::equal(out, out + size, bytes_.data() + offset)) << size << " bytes from " << offset;
  }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "file";
  std::vector<std::byte> bytes_;
};

TEST_F(BulkReaderTest, ReadsAnyRangeIntoAnyMemory) {
  const BulkReader reader(path_);
  const AlignedBuffer memory(bytes_.size() + 4096);
  for (const size_t shift : {size_t{0}, size_t{1}, size_t{2616}}) {
    for (const size_t offset : {size_t{0}, size_t{4096}, size_t{13}, 5 * kMiB - 1}) {
      for (const size_t size :
           {size_t{0}, size_t{1}, size_t{4096}, kMiB, 4 * kMiB, 8 * kMiB - 3, bytes_.size() - offset}) {
        expect_part(reader, offset, size, memory.data() + shift);
        forget();
      }
    }
  }
}

TEST_F(BulkReaderTest, ReadsResidentRangesFromThePageCache) {
  std::vector<std::byte> out(bytes_.size());
  File::open_read(path_).pread(out, 0);  // puts it into the cache
  expect_part(BulkReader(path_), 3, bytes_.size() - 3, out.data());
}

TEST_F(BulkReaderTest, ThreadsReadConcurrently) {
  const BulkReader reader(path_);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> out(3 * kMiB);
      for (size_t offset = t * 1000; offset + out.size() < bytes_.size(); offset += kMiB) {
        expect_part(reader, offset, out.size(), out.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(BulkReaderTest, TruncatedFileIsCorruptData) {
  const BulkReader reader(path_);
  std::filesystem::resize_file(path_, 6 * kMiB + 5);
  std::vector<std::byte> out(8 * kMiB);
  const auto thrown = test::thrown_by([&] { reader.read(out, 4096); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_NE(thrown.text.find("ends at byte 6291461"), std::string::npos) << thrown.text;
}

TEST_F(BulkReaderTest, MissingFileIsNotFound) {
  EXPECT_EQ(test::code_of([] { BulkReader("/nowhere/file"); }), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::core
