#include "core/io/bulk_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

using test::code_of;
using test::FaultInjection;

constexpr WritePath kPaths[] = {WritePath::kIoUring, WritePath::kDirect, WritePath::kBuffered};

std::vector<std::byte> pattern(int64_t size, int64_t salt) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    bytes[static_cast<size_t>(i)] =
        static_cast<std::byte>((static_cast<uint64_t>(i * 31 + salt) * 0x9E3779B97F4A7C15) >> 56);
  }
  return bytes;
}

class BulkWriterTest : public ::testing::TestWithParam<WritePath> {
 protected:
  // False if this machine does not support the write path; the test is then skipped.
  bool works() const {
    try {
      choose_write_path(folder_.path(), GetParam());
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
      return false;
    }
  }
  test::TemporaryFolder folder_;
};
#define SKIP_UNLESS_IT_WORKS() \
  if (!works()) GTEST_SKIP() << write_path_name(GetParam()) << " does not work here"

// Pieces of many sizes at many offsets, aligned and unaligned in file and memory.
TEST_P(BulkWriterTest, WritesEveryByte) {
  SKIP_UNLESS_IT_WORKS();
  File file = File::create(folder_ / "a");
  const int64_t sizes[] = {1, 100, 4096, 65535, 65536, 70000, 1 << 20, (1 << 20) + 1, 5'000'000, 20'000'001};
  std::vector<std::byte> whole;
  std::vector<std::pair<int64_t, std::vector<std::byte>>> pieces;
  for (const int64_t size : sizes) {
    pieces.emplace_back(static_cast<int64_t>(whole.size()), pattern(size + 7, size));
    whole.insert(whole.end(), pieces.back().second.begin() + 7, pieces.back().second.end());
    if (size % 3 == 0) whole.resize((whole.size() + 4095) / 4096 * 4096);
  }
  file.preallocate(static_cast<int64_t>(whole.size()));
  {
    BulkWriter writer(file, GetParam());
    BulkWriter::Batch batch(writer);
    for (const auto& [at, bytes] : pieces) writer.submit(std::span(bytes).subspan(7), at, batch);
    writer.wait(batch);
  }
  std::vector<std::byte> seen(whole.size());
  file.pread(seen, 0);
  EXPECT_TRUE(seen == whole);
}

TEST_P(BulkWriterTest, ThreadsShareOneWriter) {
  SKIP_UNLESS_IT_WORKS();
  constexpr int64_t kPiece = 3 << 20;
  File file = File::create(folder_ / "a");
  file.preallocate(8 * kPiece);
  BulkWriter writer(file, GetParam());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto bytes = pattern(kPiece, t);
      BulkWriter::Batch batch(writer);
      writer.submit(bytes, t * kPiece, batch);
      writer.wait(batch);
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) {
    std::vector<std::byte> seen(kPiece);
    file.pread(seen, t * kPiece);
    EXPECT_TRUE(seen == pattern(kPiece, t)) << t;
  }
}

TEST_P(BulkWriterTest, ShortAndInterruptedWritesAreCompleted) {
  SKIP_UNLESS_IT_WORKS();
  File file = File::create(folder_ / "a");
  const auto bytes = pattern(2'500'000, 1);
  file.preallocate(2'500'000);
  {
    FaultInjection disk(FaultInjection::Kind::kShortWrites, 0, 0);
    BulkWriter writer(file, GetParam());
    BulkWriter::Batch batch(writer);
    writer.submit(bytes, 0, batch);
    writer.wait(batch);
    EXPECT_GT(disk.calls(), 3);
  }
  std::vector<std::byte> seen(bytes.size());
  file.pread(seen, 0);
  EXPECT_TRUE(seen == bytes);
}

TEST_P(BulkWriterTest, FailedWriteErrorNamesTheFile) {
  SKIP_UNLESS_IT_WORKS();
  File file = File::create(folder_ / "a");
  file.preallocate(8 << 20);
  const auto bytes = pattern(8 << 20, 1);
  FaultInjection disk(FaultInjection::Kind::kWrite, 2, ENOSPC);
  BulkWriter writer(file, GetParam());
  BulkWriter::Batch batch(writer);
  const auto error = test::thrown_by([&] {
    writer.submit(bytes, 0, batch);
    writer.wait(batch);
  });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_NE(error.text.find(file.path()), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("No space left"), std::string::npos) << error.text;
}

INSTANTIATE_TEST_SUITE_P(Paths, BulkWriterTest, ::testing::ValuesIn(kPaths),
                         [](const auto& path) { return std::string(write_path_name(path.param)); });

TEST(WritePath, ChosenByProbingWithAReason) {
  const test::TemporaryFolder folder;
  const WritePathChoice choice = choose_write_path(folder.path());
  EXPECT_EQ(choice.why.rfind(write_path_name(choice.path), 0), 0u) << choice.why;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(choose_write_path(folder.path(), WritePath::kBuffered).path, WritePath::kBuffered);
  EXPECT_EQ(code_of([&] { choose_write_path(folder / "absent"); }), ErrorCode::kNotFound);
  EXPECT_EQ(parse_write_path("auto"), std::nullopt);
  EXPECT_EQ(parse_write_path("direct"), WritePath::kDirect);
  EXPECT_EQ(code_of([] { parse_write_path("mmap"); }), ErrorCode::kInvalidArgument);
}

TEST(WritePath, RateLimitSlowsTheWriter) {
  const test::TemporaryFolder folder;
  File file = File::create(folder / "a");
  file.preallocate(4 << 20);
  const auto bytes = pattern(4 << 20, 1);
  const auto start = std::chrono::steady_clock::now();
  BulkWriter writer(file, WritePath::kBuffered, 20 << 20);
  BulkWriter::Batch batch(writer);
  writer.submit(bytes, 0, batch);
  writer.wait(batch);
  // The fourth MiB may start 150 ms after the first.
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 0.14);
}

}  // namespace
}  // namespace ms::core
