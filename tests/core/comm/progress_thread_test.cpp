// A thread of its own advances a rank's operations, and groups of high priority come first.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/error.h"
#include "tests/support/comm_conformance.h"
#include "tests/support/thread_comm.h"

namespace ms {
namespace {

using core::TensorView;

TensorView view(std::vector<float>& values) {
  return {values.data(), core::DType::kFp32, {static_cast<int64_t>(values.size())}};
}

// Whether the all-reduces of a group end, while nobody tests them or waits.
bool ends_by_itself(core::Communicator& group, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    if (group.counter(core::CommOp::kAllreduce).seconds > 0) return true;  // counted when one is complete
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(ProgressThread, EndsAnAllreduceThatNobodyWaitsFor) {
  for (const bool has_thread : {false, true}) {
    std::atomic<bool> posted{false};  // by rank 0, which so finds nothing of rank 1 while it posts
    test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
      if (has_thread) endpoint.start_progress_thread();
      core::Communicator world(endpoint, "world", {0, 1}, 0), other(endpoint, "other", {0, 1}, 1);
      std::vector<float> data(6 * core::kReductionChunkBytes / sizeof(float), 1.0F);
      while (endpoint.rank() == 1 && !posted) std::this_thread::yield();
      core::Work work = world.iallreduce(view(data));
      posted = true;
      if (endpoint.rank() == 0) {
        EXPECT_EQ(ends_by_itself(world, std::chrono::milliseconds(has_thread ? 30'000 : 30)), has_thread);
      }
      other.barrier();
      work.wait();
      EXPECT_EQ(data.back(), 2.0F);
    });
  }
}

TEST(ProgressThread, CommunicatorConforms) {
  for (const int ranks : {2, 4}) {
    for (const bool shares : {false, true}) {
      test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
        if (shares) endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
        endpoint.start_progress_thread();
        test::check_communicator(endpoint);
      });
    }
  }
  const auto on_slow_link = [](core::Endpoint& endpoint) {
    endpoint.start_progress_thread();
    test::check_communicator(endpoint);
  };
  test::run_thread_ranks(2, on_slow_link, 60, {.latency_s = 50e-6, .bytes_per_s = 1e9});
}

TEST(ProgressThread, ItsErrorEndsTheNextWait) {
  try {
    test::run_thread_ranks(2, [](core::Endpoint& endpoint) {
      endpoint.start_progress_thread();
      core::Communicator world(endpoint, "world", {0, 1}, 0);
      std::vector<float> data(10'000), more(20'000);
      core::Work work = world.iallreduce(endpoint.rank() == 0 ? view(data) : view(more));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      work.wait();
    });
    FAIL() << "no rank may pass";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kInternal) << e.what();
    EXPECT_NE(std::string(e.what()).find("allreduce of 10000 fp32"), std::string::npos) << e.what();
  }
}

TEST(ProgressThread, ASilentPeerIsNamed) {
  try {
    test::run_thread_ranks(
        2,
        [](core::Endpoint& endpoint) {
          endpoint.start_progress_thread();
          core::Communicator world(endpoint, "world", {0, 1}, 0);
          if (endpoint.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            return;
          }
          std::vector<float> data(10'000);
          world.allreduce(view(data));
        },
        /*timeout_s=*/0.1);
    FAIL() << "the wait must end";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kPeerFailed) << e.what();
    EXPECT_NE(std::string(e.what()).find("rank [1] silent"), std::string::npos) << e.what();
  }
}

// Of one rank of two, whose peer sends nothing: records of which message a receive is tested.
class Listening final : public core::Transport {
 public:
  explicit Listening(std::vector<int32_t>& tested_tags) : tested_(tested_tags) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::unique_ptr<core::TransferRequest> isend(const void*, int64_t, int, int32_t) override {
    return std::make_unique<Request>(nullptr, 0);
  }
  std::unique_ptr<core::TransferRequest> irecv(void*, int64_t, int, int32_t tag) override {
    return std::make_unique<Request>(&tested_, tag);
  }

 private:
  class Request final : public core::TransferRequest {
   public:
    Request(std::vector<int32_t>* tested, int32_t tag) : tested_(tested), tag_(tag) {}
    bool test() override {
      if (tested_ != nullptr) tested_->push_back(tag_);
      return tested_ == nullptr;
    }

   private:
    std::vector<int32_t>* tested_;
    int32_t tag_;
  };
  std::vector<int32_t>& tested_;
};

TEST(Priority, AGroupOfHighPriorityAdvancesBetweenAnyTwoOthers) {
  std::vector<int32_t> tested;
  core::Endpoint endpoint(std::make_unique<Listening>(tested), {.timeout_s = 0.01});
  core::Communicator large(endpoint, "dp_cp", {0, 1}, 1), urgent(endpoint, "tp", {0, 1}, 2);
  urgent.set_high_priority();
  std::vector<float> data(5000);
  std::vector<core::Work> works;
  for (int i = 0; i < 4; ++i) works.push_back(large.iallreduce(view(data)));
  works.push_back(urgent.iallreduce(view(data)));
  tested.clear();
  endpoint.progress();
  const auto is_urgent = [](int32_t tag) { return tag >> 21 == 2; };
  ASSERT_FALSE(tested.empty());
  EXPECT_TRUE(is_urgent(tested.front()));
  int others = 0;
  for (size_t i = 1; i < tested.size(); ++i) {
    EXPECT_TRUE(is_urgent(tested[i]) || is_urgent(tested[i - 1])) << i;
    others += is_urgent(tested[i]) ? 0 : 1;
  }
  EXPECT_EQ(others, 4);
}

}  // namespace
}  // namespace ms
