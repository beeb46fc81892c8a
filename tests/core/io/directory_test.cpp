// Tests of atomic_directory.h, lock_file.h and json.h.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/lock_file.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public ::testing::Test {
 protected:
  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

using test::code_of;

TEST_F(DirectoryTest, AtomicDirectoryAppearsOnlyOnCommit) {
  {
    AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
    std::ofstream(directory.path() / "file") << "1";
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
  std::ofstream(directory.path() / "file") << "1";
  EXPECT_TRUE(directory.commit(folder_ / "x"));
  EXPECT_TRUE(fs::exists(folder_ / "x" / "file"));
}

TEST_F(DirectoryTest, CommitNeverReplacesADirectory) {
  fs::create_directory(folder_ / "x");
  {
    AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
    EXPECT_FALSE(directory.commit(folder_ / "x"));  // even an empty directory, which rename(2) would replace
    EXPECT_TRUE(directory.commit(folder_ / "y"));
  }
  EXPECT_TRUE(fs::exists(folder_ / "y"));
}

TEST_F(DirectoryTest, TemporaryNamesDiffer) { EXPECT_NE(temporary_suffix(), temporary_suffix()); }

TEST_F(DirectoryTest, LockFileExcludesASecondLock) {
  const std::string path = (folder_ / "lock").string();
  auto first = std::make_unique<LockFile>(path);
  EXPECT_EQ(code_of([&] { LockFile second(path); }), ErrorCode::kIo);
  first.reset();
  EXPECT_NO_THROW(LockFile third(path));
}

TEST_F(DirectoryTest, MakeDirectoriesDurablySyncsEachParent) {
  const fs::path deep = folder_ / "a" / "b" / "c";
  {
    const test::FaultInjection disk(test::FaultInjection::Kind::kFsync, 1, EIO);
    EXPECT_EQ(code_of([&] { make_directories_durably(deep); }), ErrorCode::kIo);
    EXPECT_EQ(disk.calls(), 2);
  }
  const test::FaultInjection disk(test::FaultInjection::Kind::kFsync, 100, EIO);
  make_directories_durably(deep.string() + "/");
  EXPECT_TRUE(fs::is_directory(deep));
  EXPECT_EQ(disk.calls(), 1);  // b exists, although its fsync failed above; c is new
  make_directories_durably(deep);
  EXPECT_EQ(disk.calls(), 1);
  test::write_file(folder_ / "file", "");
  EXPECT_EQ(code_of([&] { make_directories_durably(folder_ / "file" / "a"); }), ErrorCode::kIo);
}

// The child of a process that took the lock and died: it inherits the lock and holds it until release().
class Heir {
 public:
  explicit Heir(const std::string& path) {
    EXPECT_EQ(::pipe(pipe_), 0);
    parent_ = ::fork();
    if (parent_ == 0) {
      ::close(pipe_[1]);
      LockFile lock(path);
      char nothing;
      if (::fork() == 0) (void)!::read(pipe_[0], &nothing, 1);  // until no process has the write end
      ::_exit(0);                                               // both exit without running the destructor
    }
    ::close(pipe_[0]);
    siginfo_t ended;
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(parent_), &ended, WEXITED | WNOWAIT), 0);
  }
  ~Heir() {
    release();
    bury_parent();
  }
  void release() {
    if (pipe_[1] >= 0) ::close(std::exchange(pipe_[1], -1));
  }
  // The parent is a zombie before this.
  void bury_parent() {
    if (parent_ > 0) ::waitpid(std::exchange(parent_, -1), nullptr, 0);
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t parent_ = -1;
};

TEST_F(DirectoryTest, WaitsForAnHeirButNotForALivingHolder) {
  const std::string path = (folder_ / "lock").string();
  const auto expect_to_wait_for = [](Heir& heir, const std::function<void()>& body) {
    std::atomic<bool> done{false};
    std::thread waiting([&] {
      body();
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(done);
    heir.release();
    waiting.join();
  };
  wait_for_heir(path);  // no such file
  {
    Heir of_zombie(path);
    expect_to_wait_for(of_zombie, [&] { wait_for_heir(path); });
    EXPECT_NO_THROW(LockFile lock(path));
  }
  {
    Heir heir(path);
    heir.bury_parent();
    expect_to_wait_for(heir, [&] { LockFile lock(path); });
  }
  {
    Heir heir(path);
    heir.bury_parent();
    try {
      LockFile lock(path, 0.05);
      ADD_FAILURE() << "taken from the heir";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kIo);
      EXPECT_NE(std::string(e.what()).find("or by a process that it started"), std::string::npos) << e.what();
    }
  }
  wait_for_heir(path);
  LockFile alive(path);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of([&] { LockFile second(path); }), ErrorCode::kIo);
  wait_for_heir(path);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(100)) << "the patience for an heir is 300 s";
}

TEST(Json, LookupErrorsNameThePlace) {
  const auto json = parse_json(R"({"a": 1, "b": "x", "c": [1], "d": 18446744073709551615})", "here");
  EXPECT_EQ(json_integer(json, "a", "here"), 1);
  EXPECT_EQ(json_string(json, "b", "here"), "x");
  EXPECT_EQ(json_array(json, "c", "here").size(), 1u);
  for (const char* key : {"b", "c", "d", "absent"}) {
    EXPECT_EQ(code_of([&] { json_integer(json, key, "here"); }), ErrorCode::kCorruptData);
  }
  EXPECT_EQ(code_of([&] { json_object(json, "a", "here"); }), ErrorCode::kCorruptData);
  try {
    json_string(json, "a", "here");
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "here: \"a\": expected a string, but it is 1");
  }
}

TEST(Json, RejectsInvalidDocuments) {
  const std::string deep(100, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} x"), std::string("\xff\xfe"), deep}) {
    EXPECT_EQ(code_of([&] { parse_json(text, "here"); }), ErrorCode::kCorruptData);
  }
  EXPECT_NO_THROW(
      parse_json(R"({"a": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\""})", "here"));
}

TEST(Json, Hex16RoundTrips) {
  EXPECT_EQ(hex16(0x0123456789abcdefu), "0123456789abcdef");
  EXPECT_EQ(parse_hex16("0123456789abcdef", "here"), 0x0123456789abcdefu);
  for (const char* text : {"", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdeg"}) {
    EXPECT_EQ(code_of([&] { parse_hex16(text, "here"); }), ErrorCode::kCorruptData);
  }
}

}  // namespace
}  // namespace ms::core
