#include "convert/placed_result.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPart = 100'000, kParts = 5;

// Two files, one of kParts parts and one of a single part, and a text.
class PlacedResultTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> part(size_t file, int64_t index) {
    std::vector<std::byte> bytes(kPart);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(file * 31 + index * 7 + i / 13 + 1);
    return bytes;
  }
  static std::vector<PlacedResult::FileSpec> specs() {
    return {{"deep/er/many", kPart * kParts, kParts}, {"one", kPart, 1}, {"empty", 10, 0}};
  }
  WriteOptions options(bool resume = false, const std::string& job = "job") const { return {{}, job, resume}; }

  // Returns how many parts were kept. stop_after: number of parts after which it ends without commit.
  int run(const WriteOptions& options, int stop_after = 100) const {
    PlacedResult result(folder_, options);
    result.begin(specs(), LayoutHash());
    int kept = 0, done = 0;
    for (size_t file = 0; file < 2; ++file) {
      for (int64_t index = 0; index < specs()[file].parts; ++index) {
        if (done++ == stop_after) return kept;
        std::vector<std::byte> scratch(kPart);
        if (result.keep(file, scratch, index * kPart)) {
          EXPECT_TRUE(scratch == part(file, index));
          ++kept;
        } else {
          result.write(file, part(file, index), index * kPart);
        }
        result.done(file, 1);
      }
    }
    if (done == stop_after) return kept;
    result.write_text("note", "text");
    result.commit();
    return kept;
  }
  void expect_whole() const {
    std::map<std::string, std::string> wanted = {{"note", "text"}, {"empty", std::string(10, '\0')}};
    for (size_t file = 0; file < 2; ++file) {
      for (int64_t index = 0; index < specs()[file].parts; ++index) {
        const auto bytes = part(file, index);
        wanted[specs()[file].path].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    std::map<std::string, std::string> seen;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) seen[fs::relative(entry.path(), folder_)] = test::read_file(entry.path());
    }
    EXPECT_TRUE(seen == wanted);
    EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 1) << "nothing beside it";
  }
  fs::path staged() const { return folder_.string() + ".msckpt-tmp/result"; }

  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path() / "out";
};

TEST_F(PlacedResultTest, CommitCreatesAllFiles) {
  EXPECT_EQ(run(options()), 0);
  expect_whole();
}

TEST_F(PlacedResultTest, InterruptLeavesNothingUnlessResumable) {
  run(options(), 3);
  EXPECT_TRUE(fs::is_empty(temporary_.path()));
  run(options(true), 3);
  EXPECT_TRUE(fs::exists(staged() / "deep/er/many"));
  EXPECT_FALSE(fs::exists(folder_));
  run(options(false), 0);
  EXPECT_TRUE(fs::is_empty(temporary_.path())) << "the next one without --resume removes it";
}

TEST_F(PlacedResultTest, ResumeKeepsWrittenData) {
  run(options(true), 4);
  EXPECT_EQ(run(options(true), 6), 4);
  EXPECT_EQ(run(options(true)), 6);
  expect_whole();
}

TEST_F(PlacedResultTest, ResumeOfAnotherJobStartsOver) {
  run(options(true), 4);
  test::write_file(staged() / "of the other", "1");
  EXPECT_EQ(run(options(true, "another")), 0);
  expect_whole();
}

TEST_F(PlacedResultTest, ResumeRewritesBytesWithAnotherHash) {
  run(options(true), 6);
  const fs::path many = staged() / "deep/er/many";
  std::string bytes = test::read_file(many);
  bytes[kPart + 5] = static_cast<char>(bytes[kPart + 5] ^ 1);
  test::write_file(many, bytes);
  fs::resize_file(staged() / "one", 5);
  test::write_file(staged() / "note.tmp-1", "half");
  EXPECT_EQ(run(options(true)), kParts - 1);
  expect_whole();
}

TEST_F(PlacedResultTest, AfterKillAtAnyCallNextAttemptCompletesAndKeepsMore) {
  bool through = false;
  int most = 0;
  for (int nth = 0; !through; nth += 3) {
    SCOPED_TRACE(nth);
    for (const bool resume : {false, true}) {
      fs::remove_all(folder_);
      through = test::survives(nth, [&] { run(options()); });
      if (through) break;
      if (fs::exists(folder_)) continue;  // killed after the commit
      const int kept = run(options(resume));
      expect_whole();
      EXPECT_TRUE(resume || kept == 0);
      most = std::max(most, kept);
    }
    fs::remove_all(folder_);
    fs::remove_all(staged().parent_path());
  }
  EXPECT_EQ(most, kParts + 1) << "killed at the end, all is kept";
}

TEST_F(PlacedResultTest, SecondWriterIsRefused) {
  PlacedResult first(folder_, options()), second(folder_, options());
  first.begin(specs(), LayoutHash());
  EXPECT_EQ(test::code_of([&] { second.begin(specs(), LayoutHash()); }), core::ErrorCode::kIo);
}

TEST_F(PlacedResultTest, LayoutHashDistinguishesLayouts) {
  LayoutHash a, b, c;
  a.add("ab");
  a.add("c");
  b.add("a");
  b.add("bc");
  c.add(ckpt::ShardTable{core::ShardedTensor{"t", core::TensorRole::kParam, core::DType::kFp32, {4}, {0}, {4}}});
  EXPECT_NE(a.value(), b.value());
  EXPECT_NE(c.value(), LayoutHash().value());
}

}  // namespace
}  // namespace ms::convert
