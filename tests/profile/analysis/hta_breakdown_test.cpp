// The breakdown by Holistic Trace Analysis' method, on examples small enough to count by hand.
#include "profile/analysis/hta_breakdown.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "profile/analysis/hta_rounding.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

class HtaBreakdownTest : public testing::Test {
 protected:
  std::optional<HtaBreakdown> of(test::TraceMaker& maker) {
    const Store store = load({maker.finish()}, {});
    return hta_breakdown(hta_frames(store.ranks, /*keep_last_step=*/true)[0]);
  }
  test::TemporaryFolder folder_;
};

TEST_F(HtaBreakdownTest, FirstStartToLastEndIsAllThereIs) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 10000);
  maker.kernel("gemm", 1000, 4000);
  maker.kernel("ncclKernel_AllReduce", 3000, 6000);
  maker.copy("Memcpy DtoH", 7000, 8000);
  const auto breakdown = of(maker);
  ASSERT_TRUE(breakdown.has_value());
  EXPECT_EQ(breakdown->kernel, 7000);
  EXPECT_EQ(breakdown->idle, 1000);
  EXPECT_EQ(breakdown->compute, 3000);
  EXPECT_EQ(breakdown->non_compute, 3000);
  EXPECT_EQ(breakdown->communication, 3000);
  EXPECT_EQ(breakdown->overlap, 1000);
}

TEST_F(HtaBreakdownTest, AKernelLaunchedAfterTheLastStepDoesNotCount) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  maker.host("ProfilerStep#2", 1000, 2000);
  maker.launch(1, 100, 110);
  maker.launch(2, 1900, 1910);
  maker.launch(3, 2001, 2010);
  maker.kernel("gemm", 200, 300, 1);
  maker.kernel("gemm", 2100, 2300, 2);
  maker.kernel("gemm", 2500, 9000, 3);
  const Store store = load({maker.finish()}, {});
  const auto breakdown = hta_breakdown(hta_frames(store.ranks, /*keep_last_step=*/true)[0]);
  ASSERT_TRUE(breakdown.has_value());
  EXPECT_EQ(breakdown->kernel, 2100);
  EXPECT_EQ(breakdown->compute, 300);
  EXPECT_EQ(breakdown->idle, 1800);
  EXPECT_EQ(hta_breakdown(hta_frames(store.ranks, /*keep_last_step=*/false)[0])->kernel, 100);
}

TEST_F(HtaBreakdownTest, WhatANameSays) {
  core::write_text_atomically(folder_ / "trace.json", R"([
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 10, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "hipMemcpyKernel", "ts": 20, "dur": 5, "args": {"stream": 7}},
    {"ph": "X", "cat": "mtia_ccp_events", "name": "pe_exe", "ts": 30, "dur": 7, "args": {"stream": 7}},
    {"ph": "X", "cat": "mtia_ccp_events", "name": "event_wait", "ts": 40, "dur": 3, "args": {"stream": 7}},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "ts": 50, "dur": 1, "args": {"stream": 7}},
    {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "ts": 60, "dur": 2, "args": {"stream": 4294967295}},
    {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "ts": 70, "dur": 9, "args": {"stream": -1}}])");
  const Store store = load({folder_ / "trace.json"}, {});
  const auto breakdown = hta_breakdown(hta_frames(store.ranks, true)[0]);
  ASSERT_TRUE(breakdown.has_value());
  EXPECT_EQ(breakdown->kernel, 62'000) << "the last of them is on no stream";
  EXPECT_EQ(breakdown->compute, 13'000);
  EXPECT_EQ(breakdown->communication, 5'000);
  EXPECT_EQ(breakdown->idle, (62 - 10 - 5 - 7 - 3 - 1 - 2) * 1000);
}

TEST_F(HtaBreakdownTest, OurCollectivesAreThoseOfTheExportAndTimesCountFromItsFirst) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 700, 90'700);
  maker.kernel("gemm", 10'700, 40'700);
  maker.comm("allreduce", "dp", {0}, 30'700, 60'200);
  const Store store = load({maker.finish()}, {});
  round_as_hta(*store.ranks[0]);
  const auto breakdown = hta_breakdown(hta_frames(store.ranks, /*keep_last_step=*/true)[0]);
  ASSERT_TRUE(breakdown.has_value());
  EXPECT_EQ(breakdown->compute, 30'000) << "whole microseconds after the first event";
  EXPECT_EQ(breakdown->communication, 29'000) << "59.5 us after it is rounded down";
  EXPECT_EQ(breakdown->overlap, 10'000);
}

TEST_F(HtaBreakdownTest, NothingOnAStreamIsNothing) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  EXPECT_FALSE(of(maker).has_value());
}

}  // namespace
}  // namespace ms::profile
