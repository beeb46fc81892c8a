// The flight recorder: its file has what was posted, in a ring, whatever becomes of the process.
#include "core/comm/flight_recorder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "core/comm/flight_dump.h"
#include "core/error.h"
#include "core/trace/recorder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

FlightRecorder::Post allreduce(int32_t group, int64_t sequence) {
  return {.group = group,
          .sequence = sequence,
          .in_elements = 4,
          .out_elements = 4,
          .payload_bytes = 16,
          .posted_ns = trace::now_ns()};
}

TEST(FlightRecorder, FileHasGroupsOperationsAndPhases) {
  const test::TemporaryFolder folder;
  FlightRecorder recorder;
  recorder.open({.folder = folder.path(), .rank = 3, .world_size = 4, .capacity = 8, .job = 77});
  const int32_t tp = recorder.group("tp", 0, {2, 3}), pp = recorder.group("pp", 1, {1, 3});
  EXPECT_EQ(recorder.group("tp", 0, {2, 3}), tp);
  recorder.set_iteration(5);
  uint64_t first = 0;
  {
    const FlightPhase phase(&recorder, "forward", 2);
    first = recorder.post(allreduce(tp, 9));
  }
  const uint64_t second = recorder.post({.op = CommOp::kRecv,
                                         .dtype = DType::kBf16,
                                         .tag = 1,
                                         .group = pp,
                                         .peer = 1,
                                         .sequence = 4,
                                         .in_elements = 6,
                                         .out_elements = 6,
                                         .payload_bytes = 12,
                                         .posted_ns = trace::now_ns()});
  recorder.complete(first, trace::now_ns(), trace::now_ns());
  recorder.wait_begins(second, trace::now_ns());

  const FlightDump dump = read_flight_file(folder.path() / flight_file_name(3));
  EXPECT_EQ(dump.rank, 3);
  EXPECT_EQ(dump.waited(), &dump.entries.back());
  EXPECT_GT(dump.waited_ns(), 0) << "a process that runs goes on waiting";
  EXPECT_EQ(dump.world_size, 4);
  EXPECT_EQ(dump.job, 77u);
  EXPECT_EQ(dump.process, ProcessState::kRuns);
  EXPECT_FALSE(dump.ended);
  ASSERT_EQ(dump.groups.size(), 2u);
  EXPECT_EQ(dump.groups[1], (FlightGroup{"pp", {1, 3}}));
  ASSERT_EQ(dump.entries.size(), 2u);
  const FlightEntry &a = dump.entries[0], &b = dump.entries[1];
  EXPECT_EQ(a.op, "allreduce");
  EXPECT_EQ(a.sequence, 9);
  EXPECT_EQ(a.shape, "4");
  EXPECT_EQ(a.dtype, "fp32");
  EXPECT_EQ(a.bytes, 16);
  EXPECT_EQ(a.caller, "forward, micro-batch 2, iteration 5");
  EXPECT_TRUE(a.completed());
  EXPECT_GE(a.completed_ns, a.posted_ns);
  EXPECT_GT(a.posted_ns, int64_t{1'700'000'000} * 1'000'000'000) << "times are since 1970";
  EXPECT_TRUE(b.is_message && !b.is_send);
  EXPECT_EQ(b.peer, 1);
  EXPECT_EQ(b.tag, 1);
  EXPECT_EQ(b.state, FlightState::kScheduled);
  EXPECT_EQ(dump.waited(), &b);
}

TEST(FlightRecorder, RingKeepsTheLastOperations) {
  const test::TemporaryFolder folder;
  FlightRecorder recorder;
  recorder.open({.folder = folder.path(), .capacity = 5});
  const int32_t group = recorder.group("tp", 0, {0});
  for (int64_t i = 0; i < 12; ++i) {
    const uint64_t number = recorder.post(allreduce(group, i));
    if (i == 3) recorder.complete(number - 3, 1, 2);  // overwritten by now: must not touch another one
  }
  const FlightDump dump = read_flight_file(folder.path() / flight_file_name(0));
  ASSERT_EQ(dump.entries.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(dump.entries[i].sequence, static_cast<int64_t>(7 + i));
    EXPECT_EQ(dump.entries[i].number, static_cast<int64_t>(8 + i));
  }
  recorder.complete(1, 1, 2);
  EXPECT_FALSE(read_flight_file(folder.path() / flight_file_name(0)).entries[0].completed());
}

TEST(FlightRecorder, FileOutlivesSigkill) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder;
    recorder.open({.folder = folder.path(), .capacity = 100, .remove_at_end = true});
    const int32_t group = recorder.group("dp_cp", 2, {0});
    for (int64_t i = 0; i < 3; ++i) recorder.post(allreduce(group, i));
    ::raise(SIGKILL);
  }
  ASSERT_GT(child, 0);
  siginfo_t zombie{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &zombie, WEXITED | WNOWAIT), 0);
  FlightDump dump = read_flight_file(folder.path() / flight_file_name(0));
  EXPECT_EQ(dump.entries.size(), 3u);
  EXPECT_EQ(dump.process, ProcessState::kDead) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  dump = read_flight_file(folder.path() / flight_file_name(0));
  EXPECT_EQ(dump.process, ProcessState::kDead);
  EXPECT_FALSE(dump.ended);
}

TEST(FlightRecorder, EndRemovesOnlyWhatNobodyAskedFor) {
  const test::TemporaryFolder folder;
  const fs::path asked = folder.path() / "asked", own = folder.path() / "own";
  fs::create_directories(asked);
  fs::create_directories(own);
  {
    FlightRecorder a, b, c;
    a.open({.folder = asked});
    b.open({.folder = own, .rank = 0, .world_size = 2, .remove_at_end = true});
    c.open({.folder = own, .rank = 1, .world_size = 2, .remove_at_end = true});
    b.end();
    EXPECT_TRUE(fs::exists(own / flight_file_name(1)));
  }
  EXPECT_TRUE(read_flight_file(asked / flight_file_name(0)).ended);
  EXPECT_FALSE(fs::exists(own));
}

TEST(FlightRecorder, OneRankReportsAFailureAndTheRecordsStay) {
  const test::TemporaryFolder folder;
  {
    FlightRecorder a, b, off;
    a.open({.folder = folder.path(), .rank = 0, .world_size = 2, .remove_at_end = true});
    b.open({.folder = folder.path(), .rank = 1, .world_size = 2, .remove_at_end = true});
    EXPECT_TRUE(b.claim_report("rank 0 is silent"));
    EXPECT_FALSE(a.claim_report("rank 1 is silent"));
    EXPECT_TRUE(off.claim_report("of a rank without a recorder"));
  }
  EXPECT_TRUE(read_flight_file(folder.path() / flight_file_name(0)).failed);
  std::string verdict;
  std::getline(std::ifstream(folder.path() / "verdict"), verdict);
  EXPECT_EQ(verdict, "rank 0 is silent");
}

TEST(FlightRecorder, CommunicatorRecordsEveryOperation) {
  const test::TemporaryFolder folder;
  std::vector<FlightRecorder> recorders(2);
  for (int rank = 0; rank < 2; ++rank) {
    recorders[static_cast<size_t>(rank)].open({.folder = folder.path(), .rank = rank, .world_size = 2});
  }
  test::run_thread_ranks(
      2,
      [](Endpoint& endpoint) {
        Communicator world(endpoint, "world", {0, 1}, 0);
        std::vector<float> data(6), half(3);
        const TensorView all(data.data(), DType::kFp32, {6}), part(half.data(), DType::kFp32, {3});
        world.allreduce(all);
        world.reduce_scatter(all, part);
        for (const int tag : {1, 0, 1}) {
          if (world.rank() == 0) world.send(part, 1, tag);
          if (world.rank() == 1) world.recv(part, 0, tag);
        }
        world.barrier();
      },
      60, {}, {}, {},
      [&](int rank, Endpoint::Options& options) { options.flight = &recorders[static_cast<size_t>(rank)]; });
  for (int rank = 0; rank < 2; ++rank) {
    const FlightDump dump = read_flight_file(folder.path() / flight_file_name(rank));
    ASSERT_EQ(dump.entries.size(), 6u);
    const char* message = rank == 0 ? "send" : "recv";
    const std::vector<std::string> ops = {"allreduce", "reduce_scatter", message, message, message, "barrier"};
    const std::vector<int64_t> sequences = {0, 1, 0, 0, 1, 2};  // of messages: with the tag
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(dump.entries[i].op, ops[i]);
      EXPECT_EQ(dump.entries[i].sequence, sequences[i]) << i;
      EXPECT_TRUE(dump.entries[i].completed());
      EXPECT_EQ(dump.entries[i].peer, i >= 2 && i <= 4 ? 1 - rank : -1);
    }
    EXPECT_EQ(dump.entries[1].shape, "6 -> 3");
    EXPECT_EQ(dump.waits_for, 0);
  }
}

TEST(FlightRecorder, DamagedFilesAreRefusedByName) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / flight_file_name(0);
  {
    FlightRecorder recorder;
    recorder.open({.folder = folder.path(), .capacity = 4});
    recorder.group("tp", 0, {0});
  }
  EXPECT_TRUE(is_flight_file(path));
  fs::resize_file(path, fs::file_size(path) - 1);
  const test::Thrown thrown = test::thrown_by([&] { read_flight_file(path); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_NE(thrown.text.find(path.string()), std::string::npos) << thrown.text;
  fs::resize_file(path, 20);
  EXPECT_EQ(test::code_of([&] { read_flight_file(path); }), ErrorCode::kCorruptData);
  std::ofstream(path) << std::string(2000, 'x');
  EXPECT_FALSE(is_flight_file(path));
  EXPECT_EQ(test::code_of([&] { read_flight_file(path); }), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::core
