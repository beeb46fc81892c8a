// The conformance suite on thread ranks, without and with a slow link, and the report of a silent peer.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/comm/single_transport.h"
#include "tests/support/comm_conformance.h"
#include "tests/support/thread_comm.h"

namespace ms {
namespace {

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, CommunicatorConforms) { test::run_thread_ranks(GetParam(), test::check_communicator); }

TEST_P(ThreadRanks, CommunicatorConformsOverASlowLink) {
  test::run_thread_ranks(GetParam(), test::check_communicator, 60, {.latency_s = 50e-6, .bytes_per_s = 1e9});
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

TEST(SilentPeer, TimeoutNamesTheRank) {
  try {
    test::run_thread_ranks(
        2,
        [](core::Endpoint& endpoint) {
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
