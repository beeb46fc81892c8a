// Ranks that are stuck, in another operation, or in one of another shape: every other rank ends within the time-out and
// names the rank at fault, not those that wait for it.
#include "core/comm/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/flight_diagnosis.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"

namespace ms::core {
namespace {

constexpr double kTimeoutS = 2;  // on a busy machine healthy ranks pause too

// Errors of the ranks; empty for one that has none.
std::vector<std::string> errors_of(int ranks, const std::function<void(Endpoint&)>& body) {
  const test::TemporaryFolder folder;
  std::vector<FlightRecorder> recorders(static_cast<size_t>(ranks));
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    recorders[static_cast<size_t>(rank)].open({.folder = folder.path(), .rank = rank, .world_size = ranks});
  }
  test::run_thread_ranks(
      ranks,
      [&](Endpoint& endpoint) {
        try {
          body(endpoint);
        } catch (const Error& e) {
          errors[static_cast<size_t>(endpoint.rank())] = e.what();
          // The others are to find the fault themselves, not that this rank has gone.
          std::this_thread::sleep_for(std::chrono::milliseconds(4000));
        }
      },
      kTimeoutS, {}, {}, {},
      [&](int rank, Endpoint::Options& options) { options.flight = &recorders[static_cast<size_t>(rank)]; });
  return errors;
}

void expect_all_name(const std::vector<std::string>& errors, const std::string& words, int culprit) {
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (static_cast<int>(rank) == culprit) continue;
    EXPECT_NE(errors[rank].find(words), std::string::npos) << "rank " << rank << ": " << errors[rank];
    EXPECT_NE(errors[rank].find("msprof flight "), std::string::npos) << errors[rank];
  }
}

void stay_away() { std::this_thread::sleep_for(std::chrono::milliseconds(4000)); }

// Then a rank cannot see who is at fault, nor, since that one is silent, agree with others on one report.
TEST(Watchdog, WithoutRecordsEachRankSaysWhomItWaitsFor) {
  std::vector<std::string> errors(3);
  test::run_thread_ranks(
      3,
      [&](Endpoint& endpoint) {
        Communicator world(endpoint, "world", {0, 1, 2}, 0);
        if (endpoint.rank() == 2) return stay_away();
        try {
          world.allreduce(1.0);
        } catch (const Error& e) {
          errors[static_cast<size_t>(endpoint.rank())] = e.what();
        }
      },
      kTimeoutS);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_NE(errors[rank].find("silent for"), std::string::npos) << errors[rank];
    EXPECT_TRUE(errors[rank].ends_with("without flight records each rank reports whom it waits for itself"))
        << errors[rank];
  }
}

TEST(Watchdog, AbsentRankIsNamedByAllWithItsLastOperation) {
  const auto errors = errors_of(4, [](Endpoint& endpoint) {
    Communicator world(endpoint, "dp_cp", {0, 1, 2, 3}, 0);
    for (int step = 0; step < 3; ++step) world.allreduce(1.0);
    if (endpoint.rank() == 2) return stay_away();
    world.allreduce(1.0);
  });
  expect_all_name(errors, "allreduce 3 in group dp_cp [0, 1, 2, 3]: rank [2] silent for", 2);
  expect_all_name(errors, "its last operation: allreduce 2 in group dp_cp", 2);
  expect_all_name(errors, "has not come", 2);
}

// Rank 0 waits for 1, which waits for 2, which waits for 3.
TEST(Watchdog, EndOfAChainIsNamedNotItsVictims) {
  const auto errors = errors_of(4, [](Endpoint& endpoint) {
    Communicator pp(endpoint, "pp", {0, 1, 2, 3}, 0);
    std::vector<float> data(8);
    const TensorView view(data.data(), DType::kFp32, {8});
    if (endpoint.rank() == 3) return stay_away();
    pp.recv(view, endpoint.rank() + 1);
  });
  expect_all_name(errors, "recv 0 in group pp [0, 1, 2, 3]: rank [3] silent for", 3);
  expect_all_name(errors, "rank [2] waits for it, and ranks [0, 1] for those", 3);
}

// A pipeline of two replicas: rank 3 is stuck, rank 2 waits for it in a message, the others for rank 2 or 3.
TEST(Watchdog, FaultIsFoundAcrossGroups) {
  const auto errors = errors_of(4, [](Endpoint& endpoint) {
    const int rank = endpoint.rank();
    Communicator pp(endpoint, "pp", {rank % 2, rank % 2 + 2}, 0);
    Communicator dp(endpoint, "dp_cp", {rank / 2 * 2, rank / 2 * 2 + 1}, 1);
    std::vector<float> data(8);
    const TensorView view(data.data(), DType::kFp32, {8});
    if (rank == 3) return stay_away();
    if (rank == 1) pp.recv(view, 1);
    dp.allreduce(view);
  });
  expect_all_name(errors, "rank [3] silent for", 3);
}

// Of four ranks one is in another collective of equal size: the majority decides.
TEST(Watchdog, RankInAnotherCollectiveIsNamed) {
  const auto errors = errors_of(4, [](Endpoint& endpoint) {
    Communicator tp(endpoint, "tp", {0, 1, 2, 3}, 0);
    std::vector<float> data(64), part(16);
    const TensorView all(data.data(), DType::kFp32, {64}), own(part.data(), DType::kFp32, {16});
    tp.allreduce(all);
    if (endpoint.rank() == 1) return tp.allgather(own, all);
    tp.allreduce(all);
  });
  expect_all_name(errors, "rank [1] departs: it is in allgather of 16 -> 64 fp32, not in allreduce of 64 fp32", -1);
}

// Of two ranks the one that departs from what it did before.
TEST(Watchdog, OfTwoRanksTheOneThatDepartsFromItsHabitIsNamed) {
  for (const int culprit : {0, 1}) {
    const auto errors = errors_of(2, [&](Endpoint& endpoint) {
      Communicator tp(endpoint, "tp", {0, 1}, 0);
      std::vector<float> data(64);
      const TensorView all(data.data(), DType::kFp32, {64}), half(data.data(), DType::kFp32, {32});
      for (int step = 0; step < 4; ++step) {
        tp.allreduce(half);
        tp.allreduce(all);
        tp.barrier();
      }
      tp.allreduce(half);
      tp.allreduce(endpoint.rank() == culprit ? half : all);
    });
    expect_all_name(errors, cat("rank [", culprit, "] departs: it is in allreduce of 32 fp32, not in allreduce of 64"),
                    -1);
  }
}

TEST(Watchdog, MessageOfAnotherShapeNamesItsSender) {
  const auto errors = errors_of(2, [](Endpoint& endpoint) {
    Communicator pp(endpoint, "pp", {0, 1}, 0);
    std::vector<float> data(64);
    const TensorView all(data.data(), DType::kFp32, {64}), half(data.data(), DType::kFp32, {32});
    for (int step = 0; step < 4; ++step) endpoint.rank() == 0 ? pp.send(all, 1) : pp.recv(all, 0);
    endpoint.rank() == 0 ? pp.send(half, 1) : pp.recv(all, 0);
    if (endpoint.rank() == 0) stay_away();
  });
  expect_all_name(errors, "rank [0] departs: it is in send of 32 fp32, not in recv of 64 fp32", 0);
}

// A rank enters a collective of another group; the others wait for it where they always meet.
TEST(Watchdog, RankInACollectiveOfAnotherGroupIsNamed) {
  const auto errors = errors_of(4, [](Endpoint& endpoint) {
    const int rank = endpoint.rank();
    Communicator tp(endpoint, "tp", {rank / 2 * 2, rank / 2 * 2 + 1}, 0), world(endpoint, "world", {0, 1, 2, 3}, 1);
    for (int step = 0; step < 4; ++step) {
      for (int i = 0; i < 3; ++i) tp.allreduce(1.0);
      world.allreduce(1.0);
    }
    tp.allreduce(1.0);
    if (rank == 1) world.allreduce(1.0);
    for (int i = 0; i < 2; ++i) tp.allreduce(1.0);
    world.allreduce(1.0);
  });
  expect_all_name(errors, "rank [1] silent for", -1);
  expect_all_name(errors, "is in allreduce of 1 fp64 in group world, not in allreduce of 1 fp64 in group tp", -1);
}

TEST(Watchdog, WaitsAreChargedToTheRankThatCausesThem) {
  std::vector<double> delay(4);
  std::mutex mutex;
  test::run_thread_ranks(4, [&](Endpoint& endpoint) {
    Communicator world(endpoint, "world", {0, 1, 2, 3}, 0);
    std::vector<float> data(8);
    const TensorView view(data.data(), DType::kFp32, {8});
    world.barrier();
    endpoint.take_waits();
    for (int step = 0; step < 5; ++step) {  // rank 3 is slow; 2 waits for it, 1 for 2, 0 for 1
      if (endpoint.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(40));
      if (endpoint.rank() < 3) world.recv(view, endpoint.rank() + 1);
      if (endpoint.rank() > 0) world.send(view, endpoint.rank() - 1);
    }
    const Endpoint::Waits waits = endpoint.take_waits();
    const std::lock_guard lock(mutex);
    for (size_t rank = 0; rank < 4; ++rank) delay[rank] += waits.for_rank_s[rank];
    delay[static_cast<size_t>(endpoint.rank())] -= waits.total_s;
  });
  EXPECT_GT(delay[3], 0.15);
  EXPECT_LT(delay[1], 0.1);
  EXPECT_LT(delay[2], 0.1);
  EXPECT_LT(delay[0], -0.1);
}

}  // namespace
}  // namespace ms::core
