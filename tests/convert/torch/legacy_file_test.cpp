// A file as torch.save wrote it before 1.6: every value, and every kind of truncation and change.
#include "convert/torch/legacy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::HasSubstr;

// Made by tests/data/make_torch_files.py: "a" counts in fp32 [2, 3], "b" is its second row, "c" counts in bf16 [5].
const std::string kFile = core::cat(MS_TEST_DATA, "/torch/legacy.pt");

TEST(LegacyTorchFile, ReadsAllValues) {
  EXPECT_TRUE(is_legacy_torch_file(ArchiveRange::whole(kFile)));
  EXPECT_FALSE(is_legacy_torch_file(ArchiveRange::whole(core::cat(MS_TEST_DATA, "/torch/state_dict.pt"))));
  const auto file = open_state_dict(kFile);
  ASSERT_EQ(file->size(), 3U);
  std::vector<float> a(6), b(3);
  file->read((*file)[*file->find("a")].begin, std::as_writable_bytes(std::span(a)));
  file->read((*file)[*file->find("b")].begin, std::as_writable_bytes(std::span(b)));
  EXPECT_THAT(a, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(b, testing::ElementsAre(3, 4, 5));
  std::vector<uint16_t> c(5);
  file->read((*file)[*file->find("c")].begin, std::as_writable_bytes(std::span(c)));
  EXPECT_THAT(c, testing::ElementsAre(0, 0x3f80, 0x4000, 0x4040, 0x4080));
}

TEST(LegacyTorchFile, TruncationAnywhereIsRefused) {
  const test::TemporaryFolder folder;
  const std::string whole = test::read_file(kFile);
  for (size_t size = 0; size < whole.size(); ++size) {
    test::write_file(folder / "x.bin", whole.substr(0, size));
    const test::Thrown thrown = test::thrown_by([&] { open_state_dict(folder / "x.bin"); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << size << ": " << thrown.text;
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  test::write_file(folder / "x.bin", whole + "x");
  EXPECT_THAT(test::thrown_by([&] { open_state_dict(folder / "x.bin"); }).text,
              HasSubstr("1 extra bytes after the last storage"));
}

// The result is an error or a parsed file, never a crash.
TEST(LegacyTorchFile, AnyFlippedBitIsRefusedOrRead) {
  const test::TemporaryFolder folder;
  const std::string whole = test::read_file(kFile);
  for (size_t bit = 0; bit < whole.size() * 8; bit += 17) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    test::write_file(folder / "x.bin", changed);
    try {
      const auto file = open_state_dict(folder / "x.bin");
      for (size_t i = 0; i < file->size(); ++i) {
        std::vector<std::byte> bytes((*file)[i].end - (*file)[i].begin);
        file->read((*file)[i].begin, bytes);
      }
    } catch (const core::Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported) << error.what();
    }
  }
}

}  // namespace
}  // namespace ms::convert
