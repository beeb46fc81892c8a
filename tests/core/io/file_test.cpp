#include "core/io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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

// Who has named it must act, as for an absent one.
TEST_F(FileTest, NameThatLeadsToNoFileIsTheCommandLines) {
  EXPECT_EQ(code_of([&] { File::open_read(at("none")); }), ErrorCode::kNotFound);
  for (const std::string& name : {folder_.path().string(), at(std::string(5000, 'a')), at(std::string(300, 'a'))})
    EXPECT_EQ(code_of([&] { File::open_read(name); }), ErrorCode::kInvalidArgument) << name;
}

TEST_F(FileTest, IrregularFilesAreRefusedWithoutBlocking) {
  namespace fs = std::filesystem;
  using testing::HasSubstr;
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", at("device"));
  fs::create_symlink(at("loop"), at("loop"));
  const auto refused = [&](const std::string& name) {
    const test::Thrown thrown = test::thrown_by([&] { File::open_read(at(name)); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument) << name;
    return thrown.text;
  };
  EXPECT_THAT(refused("fifo"), HasSubstr("a FIFO, not a regular file"));
  EXPECT_THAT(refused("device"), HasSubstr("a device, not a regular file"));
  EXPECT_THAT(refused("loop"), HasSubstr("symbolic links"));
  EXPECT_EQ(code_of([&] { read_text(at("fifo"), 10); }), ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, ConfinedFolderRefusesLinksOutOfIt) {
  namespace fs = std::filesystem;
  const fs::path top = folder_.path(), inside = top / "checkpoint";
  fs::create_directories(inside / "rank");
  write_text_atomically((top / "secret").string(), "secret");
  write_text_atomically((inside / "data").string(), "data");
  fs::create_symlink(top / "secret", inside / "out");
  fs::create_symlink("../secret", inside / "relative");
  fs::create_symlink("data", inside / "in");
  fs::create_directory_symlink(top, inside / "parent");
  fs::create_directory_symlink(inside, top / "name");
  EXPECT_EQ(read_text((inside / "out").string(), 10), "secret");  // nothing is confined yet
  confine_reads(inside.string() + "/");
  for (const char* name : {"out", "relative", "parent/secret"}) {
    const test::Thrown thrown = test::thrown_by([&] { read_text((inside / name).string(), 10); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << name;
    EXPECT_THAT(thrown.text, testing::HasSubstr("is a link out of the folder")) << name;
  }
  for (const char* name : {"data", "in", "rank/../in", "parent/checkpoint/data"}) {
    EXPECT_EQ(read_text((inside / name).string(), 10), "data") << name;
  }
  confine_reads((top / "name").string());  // itself a link; its target is the folder
  EXPECT_EQ(read_text((top / "name" / "in").string(), 10), "data");
  EXPECT_EQ(code_of([&] { read_text((top / "name" / "out").string(), 10); }), ErrorCode::kCorruptData);
}

TEST_F(FileTest, ConfinedHubSnapshotReadsItsBlobs) {
  namespace fs = std::filesystem;
  const fs::path model = folder_.path() / "models--x", snapshot = model / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(model / "blobs");
  write_text_atomically((model / "blobs" / "0123").string(), "blob");
  write_text_atomically((model / "other").string(), "other");
  fs::create_symlink("../../blobs/0123", snapshot / "config.json");
  fs::create_symlink("../../other", snapshot / "other");
  confine_reads(snapshot.string());
  EXPECT_EQ(read_text((snapshot / "config.json").string(), 10), "blob");
  EXPECT_EQ(code_of([&] { read_text((snapshot / "other").string(), 10); }), ErrorCode::kCorruptData);
}

TEST_F(FileTest, MoveClosesTheSourceAndTheOldFile) {
  File a = File::create(at("a"));
  File b = std::move(a);
  EXPECT_FALSE(a.is_open());  // NOLINT(bugprone-use-after-move)
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

TEST_F(FileTest, FailedAtomicTextLeavesNoTemporary) {
  std::filesystem::create_directory(at("taken"));
  EXPECT_EQ(code_of([&] { write_text_atomically(at("taken"), "x"); }), ErrorCode::kIo);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

}  // namespace
}  // namespace ms::core
