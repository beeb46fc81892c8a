// Whose a folder of flight records is: a run takes it from one that has ended or died, and from nobody else.
#include "core/comm/flight_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>

#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

// A run of one rank in another process, which waits until it is destroyed.
class OtherRun {
 public:
  enum End { kDies, kFails };
  explicit OtherRun(const fs::path& folder, std::optional<End> end = std::nullopt) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      FlightRecorder recorder;
      recorder.open({.folder = folder, .capacity = 4});
      if (end == kFails) recorder.claim_report("it is over");
      if (::write(ready[1], "", 1) != 1 || end) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    if (end) wait();
  }
  ~OtherRun() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    wait();
  }
  OtherRun(const OtherRun&) = delete;
  OtherRun& operator=(const OtherRun&) = delete;
  pid_t pid() const { return child_; }

 private:
  void wait() {
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  pid_t child_ = -1;
};

void write(const fs::path& path, const char* text) { std::ofstream(path) << text; }

TEST(FlightFolder, OfALiveRunIsRefusedByItsProcess) {
  const test::TemporaryFolder folder;
  const OtherRun other(folder.path());
  const test::Thrown thrown = test::thrown_by([&] { find_flight_leftovers(folder.path(), 0, 2); });
  EXPECT_EQ(thrown.code, ErrorCode::kIo);
  EXPECT_NE(thrown.text.find(cat("process ", other.pid(), ", rank 0 of a run of 1 ranks")), std::string::npos)
      << thrown.text;
  EXPECT_TRUE(find_flight_leftovers(folder.path(), 1, 2).replaced.empty()) << "looks at its own file only";
}

TEST(FlightFolder, OfADeadOrFailedRunIsTaken) {
  for (const OtherRun::End end : {OtherRun::kDies, OtherRun::kFails}) {
    const test::TemporaryFolder folder;
    const OtherRun other(folder.path(), end);
    const FlightLeftovers leftovers = find_flight_leftovers(folder.path(), 0, 1);
    EXPECT_EQ(leftovers.replaced.size(), end == OtherRun::kFails ? 2U : 1U) << "the record, and its verdict";
    EXPECT_TRUE(leftovers.foreign.empty());
    remove_flight_leftovers(leftovers);
    remove_flight_leftovers(leftovers);
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

TEST(FlightFolder, WhatOthersHaveWrittenStays) {
  const test::TemporaryFolder folder;
  { FlightRecorder().open({.folder = folder.path(), .rank = 1, .world_size = 2, .capacity = 4}); }
  write(folder.path() / flight_file_name(7), "of another program");
  fs::create_directories(folder.path() / flight_file_name(8));
  write(folder.path() / "rank_0.txt", "no record");
  const FlightLeftovers leftovers = find_flight_leftovers(folder.path(), 0, 2);
  EXPECT_EQ(leftovers.replaced, std::vector{folder.path() / flight_file_name(1)});
  EXPECT_EQ(leftovers.foreign, (std::vector{folder.path() / flight_file_name(7), folder.path() / flight_file_name(8)}));
}

TEST(FlightFolder, WhatOthersHaveWrittenIsNotOverwritten) {
  for (const std::string& name : {flight_file_name(1), std::string(kFlightVerdict)}) {
    const test::TemporaryFolder folder;
    { FlightRecorder().open({.folder = folder.path(), .capacity = 4}); }
    write(folder.path() / name, "of another program");
    const test::Thrown thrown = test::thrown_by([&] { find_flight_leftovers(folder.path(), 0, 2); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument) << name;
    EXPECT_NE(thrown.text.find((folder.path() / name).string()), std::string::npos) << thrown.text;
    EXPECT_TRUE(fs::exists(folder.path() / flight_file_name(0))) << "nothing is removed";
  }
}

TEST(FlightFolder, LockHasOneHolderAndLeavesNoFile) {
  const test::TemporaryFolder folder;
  {
    FlightRecorder recorder;
    recorder.hold(std::make_unique<FlightFolderLock>(folder.path()));
    EXPECT_EQ(test::code_of([&] { FlightFolderLock(folder.path()); }), ErrorCode::kIo);
    recorder.end();
    EXPECT_NO_THROW(FlightFolderLock(folder.path()));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace ms::core
