// Clock offsets between thread ranks, which share one clock, so the true offset is zero.
#include "core/trace/clock.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"

namespace ms::core::trace {
namespace {

TEST(ClockOffset, TrueOffsetIsWithinTheReportedError) {
  test::run_thread_ranks(3, [](Endpoint& endpoint) {
    Communicator world(endpoint, "world", {0, 1, 2}, 0);
    const int64_t before = now_ns();
    const ClockOffset offset = measure_clock_offset(world);
    EXPECT_LE(std::abs(offset.offset_ns), offset.error_ns);
    if (world.rank() == 0) {
      EXPECT_EQ(offset.error_ns, 0);
    } else {
      EXPECT_GT(offset.error_ns, 0);
    }
    EXPECT_GE(offset.at_ns, before);
    EXPECT_LE(offset.at_ns, now_ns());
  });
}

TEST(ClockOffset, ErrorIncludesTheLatencyOfASlowLink) {
  test::run_thread_ranks(2,
                         [](Endpoint& endpoint) {
                           Communicator world(endpoint, "world", {0, 1}, 0);
                           const ClockOffset offset = measure_clock_offset(world, 3);
                           if (world.rank() == 1) {
                             EXPECT_GE(offset.error_ns, 200'000);
                             EXPECT_LE(std::abs(offset.offset_ns), offset.error_ns);
                           }
                         },
                         60, {.latency_s = 200e-6, .bytes_per_s = 1e9});
}

TEST(ClockOffset, IsStoredInTheFile) {
  const test::TemporaryFolder folder;
  test::run_thread_ranks(2, [&](Endpoint& endpoint) {
    Communicator world(endpoint, "world", {0, 1}, 0);
    Recorder recorder;
    Options options;
    options.rank = endpoint.rank();
    options.world_size = 2;
    options.save_path = folder / "traces";
    recorder.start(options);
    record_clock_offset(world, &recorder);
    recorder.span(Category::kKernel, "gemm", now_ns(), now_ns());
    record_clock_offset(world, &recorder);
    recorder.stop();
  });
  const profile::Store store = profile::load({folder / "traces"}, {});
  ASSERT_EQ(store.ranks.size(), 2u);
  for (const auto& trace : store.ranks) {
    EXPECT_EQ(trace->clocks.size(), 2u);
    EXPECT_EQ(trace->events.size(), 1u);
  }
  EXPECT_TRUE(store.stats.issues().empty());
}

}  // namespace
}  // namespace ms::core::trace
