#include "core/io/result_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/fault_injection.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ResultFolderTest : public ::testing::Test {
 protected:
  using Files = std::map<std::string, std::string>;
  // All files and folders of the test by path; a folder's text is "/".
  Files there() const {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(temporary_.path())) {
      const std::string name = fs::relative(entry.path(), temporary_.path());
      files[name] = entry.is_directory() ? "/" : test::read_file(entry.path());
    }
    return files;
  }
  static void fill(const ResultFolder& result, const std::string& text = "1") {
    fs::create_directory(result.staged() / "iter");
    write_text_atomically(result.staged() / "iter/data", text);
    write_text_atomically(result.staged() / "config", text);
    write_text_atomically(result.staged() / "pointer", text);
  }
  void make(const std::string& text = "1") const {
    ResultFolder result(folder_);
    fill(result, text);
    result.publish({"config", "pointer"});
  }

  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path() / "a/out";
  const Files whole_ = {{"a", "/"},
                        {"a/out", "/"},
                        {"a/out/iter", "/"},
                        {"a/out/iter/data", "1"},
                        {"a/out/config", "1"},
                        {"a/out/pointer", "1"}};
};

TEST_F(ResultFolderTest, PublishCreatesTheCompleteFolderAndRemovesStaging) {
  {
    ResultFolder result(folder_);
    fill(result);
    EXPECT_FALSE(fs::exists(folder_));
    result.publish({"pointer"});
  }
  EXPECT_EQ(there(), whole_);
}

TEST_F(ResultFolderTest, WithoutPublishStagingAndNewParentsAreRemoved) {
  { fill(ResultFolder(folder_)); }
  EXPECT_TRUE(there().empty());
}

TEST_F(ResultFolderTest, PublishIntoAnExistingFolderKeepsItsFiles) {
  fs::create_directories(folder_);
  test::write_file(folder_ / "pointer", "0");
  test::write_file(folder_ / "other", "0");
  { fill(ResultFolder(folder_)); }
  EXPECT_EQ(there(), (Files{{"a", "/"}, {"a/out", "/"}, {"a/out/pointer", "0"}, {"a/out/other", "0"}}));
  make();
  Files wanted = whole_;
  wanted["a/out/other"] = "0";
  EXPECT_EQ(there(), wanted);
}

TEST_F(ResultFolderTest, ExistingDirectoryIsRefusedAndNothingMoves) {
  fs::create_directories(folder_ / "iter");
  const test::Thrown thrown = test::thrown_by([&] { make(); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("out/iter already exists"));
  EXPECT_EQ(there(), (Files{{"a", "/"}, {"a/out", "/"}, {"a/out/iter", "/"}}));
}

TEST_F(ResultFolderTest, SecondProcessIsRefusedNamingTheHolder) {
  const ResultFolder first(folder_);
  const test::Thrown thrown = test::thrown_by([&] { ResultFolder second(folder_); });
  EXPECT_EQ(thrown.code, ErrorCode::kIo);
  EXPECT_THAT(thrown.text, HasSubstr("a/out.msckpt-tmp/lock is held by process"));
  EXPECT_TRUE(fs::exists(first.staged()));
  EXPECT_TRUE(abandoned_results(folder_).empty()) << "its holder lives";
  remove_abandoned_results(folder_);
  EXPECT_TRUE(fs::exists(first.staged()));
}

// Killed before each of its calls, for a folder that existed and one that did not: afterwards the result is complete,
// or the next attempt does not see it.
TEST_F(ResultFolderTest, KillAtAnyCallIsUndoneByNextAttemptOrRemoval) {
  for (const bool was_there : {false, true}) {
    bool through = false;
    for (int nth = 0; !through; ++nth) {
      SCOPED_TRACE(cat("call ", nth, was_there ? " into a folder" : ""));
      for (const bool again : {true, false}) {
        fs::remove_all(temporary_.path() / "a");
        fs::create_directories(was_there ? folder_ : folder_.parent_path());
        if (was_there) test::write_file(folder_ / "pointer", "0");
        const Files before = there();
        through = test::survives(nth, [&] { make(); });
        if (through) break;
        const bool is_whole = there()["a/out/pointer"] == "1";
        if (!is_whole && again) {
          make();
        } else {
          remove_abandoned_results(folder_);
        }
        EXPECT_EQ(there(), is_whole || again ? whole_ : before);
      }
    }
  }
}

TEST_F(ResultFolderTest, DiskErrorLeavesTheFolderUnchanged) {
  using Kind = test::FaultInjection::Kind;
  for (const Kind kind : {Kind::kWrite, Kind::kFsync, Kind::kRename}) {
    int failures = 0;
    for (int nth = 0; nth < 12; ++nth) {
      fs::remove_all(temporary_.path() / "a");
      try {
        const test::FaultInjection disk(kind, nth, ENOSPC);
        make();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
        ++failures;
      }
      if (fs::exists(folder_)) {
        EXPECT_EQ(there(), whole_);
      } else {
        EXPECT_TRUE(there().empty());
      }
    }
    EXPECT_GT(failures, 0) << static_cast<int>(kind);
  }
}

TEST_F(ResultFolderTest, LeaveKeepsStagingForKeepOtherwiseItIsRemoved) {
  for (const bool keep : {true, false}) {
    {
      ResultFolder result(folder_);
      test::write_file(result.staged() / "half", "1");
      result.leave();
    }
    EXPECT_EQ(abandoned_results(folder_), std::vector<fs::path>{folder_.string() + ".msckpt-tmp"});
    const ResultFolder next(folder_, keep);
    EXPECT_EQ(fs::exists(next.staged() / "half"), keep);
  }
}

TEST_F(ResultFolderTest, StagingIsInsideAMountPoint) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "no second file system";
  // A folder on another file system than its parent needs a mount; the root of a mounted file system is one.
  const ResultFolder result("/dev/shm");
  EXPECT_EQ(result.staged(), fs::path("/dev/shm/.msckpt-tmp/result"));
}

}  // namespace
}  // namespace ms::core
