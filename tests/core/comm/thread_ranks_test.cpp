// The conformance suite on thread ranks, without and with a slow link, and the report of a silent peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "core/comm/single_transport.h"
#include "core/thread_pool.h"
#include "tests/support/comm_conformance.h"
#include "tests/support/thread_comm.h"

namespace ms {
namespace {

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, CommunicatorConforms) { test::run_thread_ranks(GetParam(), test::check_communicator); }

TEST_P(ThreadRanks, CommunicatorConformsOverASlowLink) {
  test::run_thread_ranks(GetParam(), test::check_communicator, 60, {.latency_s = 50e-6, .bytes_per_s = 1e9});
}

// Ranks that address all of each other's memory, whatever it is.
void check_in_shared_memory(core::Endpoint& endpoint) {
  endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
  test::check_communicator(endpoint);
}

TEST_P(ThreadRanks, CommunicatorConformsInSharedMemory) {
  test::run_thread_ranks(GetParam(), check_in_shared_memory);
  test::run_thread_ranks(GetParam(), check_in_shared_memory, 60, {.latency_s = 50e-6, .bytes_per_s = 1e9});
}

TEST_P(ThreadRanks, CollectivesConformInSharedMemory) {
  test::run_thread_ranks(GetParam(), [](core::Endpoint& endpoint) {
    core::Arena arena;
    endpoint.share_memory(arena.share({core::MemoryTag::kParam, core::MemoryTag::kGrad}));
    test::check_shared_memory(endpoint, arena);
  });
}

// Each rank waits for its own in the opposite order of its neighbour's.
TEST_P(ThreadRanks, MoreOperationsInSharedMemoryThanNoticesAreUnderWay) {
  test::run_thread_ranks(GetParam(), [](core::Endpoint& endpoint) {
    endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
    std::vector<int> members(static_cast<size_t>(endpoint.size()));
    std::iota(members.begin(), members.end(), 0);
    core::Communicator world(endpoint, "world", members, 0);
    constexpr int kOperations = 50, kCount = 20'000;
    std::vector<std::vector<float>> data(kOperations);
    for (int round = 0; round < 3; ++round) {
      std::vector<core::Work> works;
      for (int i = 0; i < kOperations; ++i) {
        auto& own = data[static_cast<size_t>(i)];
        own.assign(kCount, static_cast<float>(i + endpoint.rank()));
        works.push_back(world.iallreduce(core::TensorView(own.data(), core::DType::kFp32, {kCount})));
      }
      if (endpoint.rank() % 2 == 1) std::ranges::reverse(works);
      for (core::Work& work : works) work.wait();
      for (int i = 0; i < kOperations; ++i) {
        const int ranks = endpoint.size(), sum = ranks * i + ranks * (ranks - 1) / 2;
        EXPECT_EQ(std::ranges::count(data[static_cast<size_t>(i)], static_cast<float>(sum)), kCount) << i;
      }
    }
  });
}

// What a slow link would carry takes as long where nothing is sent.
TEST(SharedMemory, TakesTheTimeOfTheLink) {
  constexpr int64_t kCount = 1 << 20;
  constexpr double kBytesPerS = 20e6;
  test::run_thread_ranks(2,
                         [](core::Endpoint& endpoint) {
                           endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
                           core::Communicator world(endpoint, "world", {0, 1}, 0);
                           std::vector<float> data(kCount), part(kCount / 2);
                           const core::TensorView whole(data.data(), core::DType::kFp32, {kCount});
                           const core::TensorView half(part.data(), core::DType::kFp32, {kCount / 2});
                           const auto seconds = [&](const std::function<void()>& operation) {
                             world.barrier();
                             const auto begin = std::chrono::steady_clock::now();
                             operation();
                             return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                           };
                           EXPECT_GE(seconds([&] { world.allreduce(whole); }), 4.0 * kCount / kBytesPerS);
                           EXPECT_GE(seconds([&] { world.reduce_scatter(whole, half); }), 2.0 * kCount / kBytesPerS);
                           EXPECT_GE(seconds([&] { world.allgather(half, whole); }), 2.0 * kCount / kBytesPerS);
                         },
                         60, {.bytes_per_s = kBytesPerS});
}

TEST(SharedMemory, SmallCollectivesTakeTheTimeOfTheLink) {
  test::run_thread_ranks(2,
                         [](core::Endpoint& endpoint) {
                           endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
                           core::Communicator world(endpoint, "world", {0, 1}, 0);
                           ASSERT_TRUE(world.has_mailbox());
                           const auto begin = std::chrono::steady_clock::now();
                           EXPECT_EQ(world.allreduce(1.0), 2.0);
                           std::vector<float> data(2000, 1.0F);
                           world.allreduce(core::TensorView(data.data(), core::DType::kFp32, {2000}));
                           EXPECT_EQ(data.back(), 2.0F);
                           EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                                     2 * 0.03 + 8000 / 1e5);
                         },
                         60, {.latency_s = 0.03, .bytes_per_s = 1e5});
}

// A group whose ranks open it at different times, and again, has boxes of its own each time.
TEST(SharedMemory, GroupsMayBeOpenedAgain) {
  test::run_thread_ranks(3, [](core::Endpoint& endpoint) {
    endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
    for (int i = 0; i < 20; ++i) {
      core::Communicator world(endpoint, "world", {0, 1, 2}, 0);
      if (endpoint.rank() == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (endpoint.rank() > 0) {
        core::Communicator part(endpoint, "part", {1, 2}, 0);
        EXPECT_EQ(part.allreduce(int64_t{endpoint.rank()}), 3);
      }
      for (int again = 0; again <= i; ++again) EXPECT_EQ(world.allreduce(int64_t{endpoint.rank() + i}), 3 + 3 * i);
    }
  });
}

// Rank 1 makes no progress until rank 0 has its output. An all-reduce is not complete before rank 1 has written its
// half of rank 0's output.
TEST(SharedMemory, OutputsAreCompleteBeforePeersHaveReadTheInput) {
  constexpr int64_t kCount = 20'000;
  std::atomic<bool> goes_on = false;
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
    core::Communicator world(endpoint, "world", {0, 1}, 0);
    std::vector<float> data(kCount), half(kCount / 2);
    const core::TensorView whole(data.data(), core::DType::kFp32, {kCount});
    const core::TensorView part(half.data(), core::DType::kFp32, {kCount / 2});
    const auto check = [&](const std::function<core::Work()>& post, const std::vector<float>& output, float sum) {
      std::ranges::fill(data, 1.0F);
      std::ranges::fill(half, 3.0F);
      goes_on = false;
      world.barrier();
      core::Work work = post();
      if (endpoint.rank() == 0) {
        work.wait_for_output();
        EXPECT_EQ(std::ranges::count(output, sum), std::ssize(output));
        EXPECT_FALSE(work.test());
        goes_on = true;
      } else {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!goes_on && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        EXPECT_TRUE(goes_on);
      }
      work.wait();
    };
    check([&] { return world.iallgather(part, whole); }, data, 3.0F);
    check([&] { return world.ireduce_scatter(whole, part); }, half, 2.0F);
    std::ranges::fill(data, 1.0F);
    core::Work sum = world.iallreduce(whole);
    if (endpoint.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sum.wait_for_output();
    EXPECT_EQ(std::ranges::count(data, 2.0F), kCount);
    sum.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, testing::Values(1, 2, 3, 4, 8));

TEST(SingleRank, CommunicatorConforms) {
  core::Endpoint endpoint(std::make_unique<core::SingleTransport>(), {});
  test::check_communicator(endpoint);
}

TEST(Bfloat16, AllreduceAddsInFp32AndRoundsOnce) {
  test::run_thread_ranks(4, [](core::Endpoint& endpoint) {
    core::Communicator world(endpoint, "world", {0, 1, 2, 3}, 0);
    // 256 + 0.6 + 0.6 + 0.6: added in bf16, each small addend would vanish (spacing 2 above 256); in fp32 they add up
    // to 1.8.
    std::vector<kernels::bf16> data(5000, kernels::bf16(endpoint.rank() == 0 ? 256.0f : 0.6f));
    world.allreduce(core::TensorView(data.data(), core::DType::kBf16, {5000}));
    EXPECT_EQ(static_cast<float>(data[4999]), 258.0f);
  });
}

class SilentPeer : public testing::TestWithParam<bool> {};

TEST_P(SilentPeer, TimeoutNamesTheRank) {
  try {
    test::run_thread_ranks(
        2,
        [](core::Endpoint& endpoint) {
          if (GetParam()) endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
          core::Communicator world(endpoint, "world", {0, 1}, 0);
          if (endpoint.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            return;
          }
          world.allreduce(1.0);
        },
        /*timeout_s=*/0.1);
    FAIL() << "the wait must end";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kPeerFailed);
    EXPECT_NE(std::string(e.what()).find("rank [1] silent"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--distributed-timeout-minutes"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, SilentPeer, testing::Bool());

class Mismatch : public testing::TestWithParam<bool> {};

// Ranks that call different operations, or the same with other sizes or dtypes: both see it, and what the other does.
TEST_P(Mismatch, BothRanksNameBothOperations) {
  using Call = std::function<void(core::Communicator&, core::TensorView&, core::TensorView&)>;
  const Call allreduce = [](auto& world, auto& data, auto&) { world.allreduce(data); };
  const Call allgather = [](auto& world, auto& data, auto& larger) { world.allgather(data, larger); };
  const Call longer = [](auto& world, auto&, auto& larger) { world.allreduce(larger); };
  const Call halves = [](auto& world, auto& data, auto&) {
    const core::TensorView other(data.bytes(), core::DType::kInt32, data.shape());
    world.allreduce(other);
  };
  const Call bcast = [](auto& world, auto& data, auto&) { world.bcast(data, 0); };
  const Call send = [](auto& world, auto& data, auto&) {
    world.rank() == 0 ? world.send(data, 1) : world.recv(data, 0);
  };
  const Call receive_more = [](auto& world, auto& data, auto& larger) {
    world.rank() == 0 ? world.send(data, 1) : world.recv(larger, 0);
  };
  for (const int64_t count : {100, 10'000}) {
    for (const auto& [first, second, words] :
         {std::tuple(allreduce, allgather, std::pair("allreduce of ", "allgather of ")),
          std::tuple(allreduce, longer, std::pair("allreduce of ", "allreduce of ")),
          std::tuple(allreduce, halves, std::pair(" fp32", " int32")),
          std::tuple(allreduce, bcast, std::pair("allreduce of ", "bcast of ")),
          std::tuple(send, receive_more, std::pair("send of ", "send of "))}) {
      try {
        test::run_thread_ranks(2, [&, &one = first, &other = second](core::Endpoint& endpoint) {
          if (GetParam()) endpoint.share_memory(core::SharedRange{nullptr, INT64_MAX, -1});
          core::Communicator world(endpoint, "world", {0, 1}, 0);
          std::vector<float> values(static_cast<size_t>(count)), more(2 * values.size());
          core::TensorView data(values.data(), core::DType::kFp32, {count});
          core::TensorView larger(more.data(), core::DType::kFp32, {2 * count});
          (endpoint.rank() == 0 ? one : other)(world, data, larger);
        });
        FAIL() << "no rank may pass";
      } catch (const core::Error& e) {
        const std::string text = e.what();
        EXPECT_EQ(e.code(), core::ErrorCode::kInternal) << text;
        EXPECT_NE(text.find(words.first), std::string::npos) << text;
        EXPECT_NE(text.find(words.second), std::string::npos) << text;
        EXPECT_NE(text.find("of group world: rank "), std::string::npos) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, Mismatch, testing::Bool());

// A transport with the smallest bound on tags that MPI allows.
class FewTags final : public core::Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<core::TransferRequest> isend(const void*, int64_t, int, int32_t) override { return nullptr; }
  std::unique_ptr<core::TransferRequest> irecv(void*, int64_t, int, int32_t) override { return nullptr; }
  int32_t max_tag() const override { return 32767; }
};

TEST(Tags, GroupsWhoseTagsTheTransportLacksAreRefused) {
  core::Endpoint endpoint(std::make_unique<FewTags>(), {});
  try {
    core::Communicator group(endpoint, "tp", {0}, 3);
    FAIL() << "its tags go up to 2^23";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("MPI_TAG_UB"), std::string::npos);
  }
}

// Reductions on threads add in the same order.
TEST(Threads, LargeReductionsAreTheSameOnAPool) {
  std::vector<float> alone, pooled;
  for (std::vector<float>* result : {&alone, &pooled}) {
    test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
      core::ThreadPool pool(3);
      if (result == &pooled) endpoint.use_threads(&pool);
      core::Communicator world(endpoint, "world", {0, 1}, 0);
      std::vector<float> data(1'000'003);
      for (size_t i = 0; i < data.size(); ++i) data[i] = 1.0f / static_cast<float>(i + 3 * endpoint.rank() + 1);
      world.allreduce(core::TensorView(data.data(), core::DType::kFp32, {static_cast<int64_t>(data.size())}));
      if (endpoint.rank() == 0) *result = data;
    });
  }
  EXPECT_EQ(alone, pooled);
}

TEST(SlowLink, DelaysByLatencyAndBandwidth) {
  int64_t sent_ns = 0;  // the other rank may start later
  double seconds = 0;
  test::run_thread_ranks(2,
                         [&](core::Endpoint& endpoint) {
                           core::Communicator world(endpoint, "world", {0, 1}, 0);
                           std::vector<float> data(250'000);  // 1 MB at 10 MB/s: 0.1 s
                           const core::TensorView view(data.data(), core::DType::kFp32, {250'000});
                           if (endpoint.rank() == 0) {
                             sent_ns = core::trace::now_ns();
                             world.send(view, 1);
                           } else {
                             world.recv(view, 0);
                             seconds = static_cast<double>(core::trace::now_ns() - sent_ns) * 1e-9;
                           }
                         },
                         60, {.latency_s = 0.02, .bytes_per_s = 10e6});
  EXPECT_GE(seconds, 0.1);
}

}  // namespace
}  // namespace ms
