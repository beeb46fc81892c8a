#include "core/io/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

class FileTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }
  test::TemporaryFolder folder_;
};

using test::code_of;

TEST_F(FileTest, ReadsBackWhatWasWrittenAtAnOffset) {
  File file = File::create(at("a"));
  const std::string text = "hello";
  file.pwrite(std::as_bytes(std::span(text)), 3);
  EXPECT_EQ(file.size_bytes(), 8);
  std::string seen(5, ' ');
  file.pread(std::as_writable_bytes(std::span(seen)), 3);
  EXPECT_EQ(seen, text);
  file.fsync();
  file.close();
  EXPECT_FALSE(file.is_open());
}

TEST_F(FileTest, ReadPastTheEndIsCorruptData) {
  const File file = File::create(at("a"));
  std::byte byte;
  EXPECT_EQ(code_of([&] { file.pread(std::span(&byte, 1), 0); }), ErrorCode::kCorruptData);
}

TEST_F(FileTest, PreallocateSetsTheSize) {
  const File file = File::create(at("a"));
  file.preallocate(100);
  EXPECT_EQ(file.size_bytes(), 100);
}

TEST_F(FileTest, AbsentFileIsNotFoundAndAFolderIsNoFile) {
  EXPECT_EQ(code_of([&] { File::open_read(at("none")); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { File::open_read(folder_.path().string()); }), ErrorCode::kIo);
}

TEST_F(FileTest, MovedFromIsClosedAndAssignmentClosesTheOld) {
  File a = File::create(at("a"));
  File b = std::move(a);
  EXPECT_FALSE(a.is_open());
  EXPECT_TRUE(b.is_open());
  b = File::create(at("b"));
  EXPECT_EQ(b.path(), at("b"));
}

TEST_F(FileTest, AtomicTextReplacesAndLeavesNoTemporary) {
  write_text_atomically(at("a"), "one");
  write_text_atomically(at("a"), "two");
  EXPECT_EQ(read_text(at("a"), 10), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  EXPECT_EQ(code_of([&] { read_text(at("a"), 2); }), ErrorCode::kCorruptData);
}

TEST_F(FileTest, AtomicTextThatCannotBeRenamedLeavesNoTemporary) {
  std::filesystem::create_directory(at("taken"));
  EXPECT_EQ(code_of([&] { write_text_atomically(at("taken"), "x"); }), ErrorCode::kIo);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

}  // namespace
}  // namespace ms::core
