#include "core/io/scratch_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> counted(size_t bytes, size_t from) {
  std::vector<std::byte> result(bytes);
  for (size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>((from + i) * 7 + i / 251);
  return result;
}

// Sizes around a block and around the pieces in which bytes are copied, from memory at any address.
TEST(ScratchFile, GivesBackWhatWasWrittenFromMemoryAtAnyAddress) {
  const test::TemporaryFolder folder;
  ScratchFile file(folder.path().string());
  int64_t offset = 0;
  for (const size_t size : {1, 511, 512, 4095, 4096, 4097, 70'001, 4 << 20, (4 << 20) + 5, 9'000'001}) {
    for (const size_t shift : {0, 1, 64, 512, 1024}) {
      AlignedBuffer memory(size + shift), room(size + shift);
      const std::vector<std::byte> bytes = counted(size, shift);
      std::ranges::copy(bytes, memory.data() + shift);
      file.write({memory.data() + shift, size}, offset);
      file.read({room.data() + shift, size}, offset);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), room.data() + shift)) << size << " bytes at " << shift;
      offset += ScratchFile::blocks_bytes(static_cast<int64_t>(size));
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "it has a name";
}

TEST(ScratchFile, RangesDoNotTouchEachOther) {
  const test::TemporaryFolder folder;
  ScratchFile file(folder.path().string());
  const std::vector<std::byte> first = counted(5000, 1), second = counted(100, 2);
  file.write(second, 8192);
  file.write(first, 0);
  std::vector<std::byte> out(100);
  file.read(out, 8192);
  EXPECT_EQ(out, second);
}

TEST(ScratchFile, ErrorsNameTheFolder) {
  const test::TemporaryFolder folder;
  const test::Thrown absent = test::thrown_by([&] { ScratchFile file(folder / "absent"); });
  EXPECT_EQ(absent.code, ErrorCode::kNotFound);
  EXPECT_NE(absent.text.find(folder / "absent"), std::string::npos) << absent.text;

  ScratchFile file(folder.path().string());
  std::vector<std::byte> bytes(10'000);
  for (const auto kind : {test::FaultInjection::Kind::kWrite, test::FaultInjection::Kind::kAllocate}) {
    const test::FaultInjection full(kind, 0, ENOSPC);
    const test::Thrown thrown = test::thrown_by([&] {
      file.reserve(10'000);
      file.write(bytes, 0);
    });
    EXPECT_EQ(thrown.code, ErrorCode::kIo);
    EXPECT_NE(thrown.text.find(folder.path().string()), std::string::npos) << thrown.text;
    EXPECT_NE(thrown.text.find("No space left"), std::string::npos) << thrown.text;
  }
  EXPECT_EQ(test::code_of([&] { file.read(bytes, 1 << 20); }), ErrorCode::kCorruptData) << "it was never written";
}

TEST(ScratchFile, ReservesSpace) {
  const test::TemporaryFolder folder;
  ScratchFile file(folder.path().string());
  file.reserve(0);
  file.reserve(1 << 20);
  std::vector<std::byte> zeros(4096, std::byte{1});
  file.read(zeros, (1 << 20) - 4096);
  EXPECT_EQ(zeros, std::vector<std::byte>(4096));
}

}  // namespace
}  // namespace ms::core
