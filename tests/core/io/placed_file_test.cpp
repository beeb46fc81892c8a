#include "core/io/placed_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

std::string counted(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(i * 7 + i / 251);
  return text;
}

std::span<const std::byte> part(const std::string& text, size_t at, size_t bytes) {
  return std::as_bytes(std::span(text)).subspan(at, bytes);
}

class PlacedFileTest : public ::testing::TestWithParam<WritePath> {
 protected:
  void SetUp() override {
    try {
      choose_write_path(folder_.path().string(), GetParam());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "file";
};

// Pieces of any length at any offset, from several threads at once, the last ones first.
TEST_P(PlacedFileTest, PiecesWrittenInAnyOrderFormTheWhole) {
  const std::string text = counted(5'000'003);
  const std::vector<size_t> cuts = {0, 1, 4095, 4097, 70'001, 1'048'576, 3'333'333, 4'999'999, text.size()};
  PlacedFile file(path_, static_cast<int64_t>(text.size()), GetParam());
  std::vector<std::thread> threads;
  for (size_t i = cuts.size() - 1; i-- > 0;) {
    threads.emplace_back(
        [&, i] { file.write(part(text, cuts[i], cuts[i + 1] - cuts[i]), static_cast<int64_t>(cuts[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  file.finish();
  EXPECT_TRUE(test::read_file(path_) == text);
}

TEST_P(PlacedFileTest, UnwrittenPartsAreZeros) {
  PlacedFile file(path_, 200'000, GetParam());
  file.finish();
  EXPECT_EQ(test::read_file(path_), std::string(200'000, '\0'));
}

TEST_P(PlacedFileTest, KeepPreservesAFileOfTheSameSizeOnly) {
  const std::string text = counted(300'000);
  for (const size_t size : {text.size(), text.size() - 1}) {
    test::write_file(path_, text);
    PlacedFile file(path_, static_cast<int64_t>(size), GetParam(), true);
    file.write(part(text, 0, 10), 100);
    file.finish();
    std::string wanted = size == text.size() ? text : std::string(size, '\0');
    wanted.replace(100, 10, text, 0, 10);
    EXPECT_TRUE(test::read_file(path_) == wanted) << size;
  }
}

TEST_P(PlacedFileTest, FullDiskErrorNamesTheFile) {
  const test::FaultInjection disk(test::FaultInjection::Kind::kAllocate, 0, ENOSPC);
  const test::Thrown thrown = test::thrown_by([&] { PlacedFile(path_, 1 << 20, GetParam()); });
  EXPECT_EQ(thrown.code, ErrorCode::kIo);
  EXPECT_NE(thrown.text.find(path_), std::string::npos) << thrown.text;
}

INSTANTIATE_TEST_SUITE_P(Paths, PlacedFileTest,
                         ::testing::Values(WritePath::kIoUring, WritePath::kDirect, WritePath::kBuffered),
                         [](const auto& path) { return std::string(write_path_name(path.param)); });

}  // namespace
}  // namespace ms::core
