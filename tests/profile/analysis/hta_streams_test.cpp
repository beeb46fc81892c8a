// Idle times, queue lengths and bandwidths by Holistic Trace Analysis' method, on examples small enough to count by
// hand.
#include "profile/analysis/hta_streams.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file.h"
#include "profile/ingest/load.h"
#include "tests/profile/analysis/small_trace.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using test::event;
using test::kernel;

class HtaStreamsTest : public testing::Test {
 protected:
  HtaFrame frame_of(const std::string& events, bool keep_last_step = true) {
    core::write_text_atomically(folder_ / "trace.json", "[" + events + "]");
    store_ = load({folder_ / "trace.json"}, {.keep_file_order = true});
    return hta_frames(store_.ranks, keep_last_step)[0];
  }
  static std::string launch(int correlation, int ts, const std::string& name = "cudaLaunchKernel") {
    return test::launch(correlation, ts, 1, name);
  }
  static std::string copy(const std::string& name, int ts, int dur, const std::string& gb_per_s) {
    const std::string on_stream = R"("device": 0, "stream": 7, )";
    return event("gpu_memcpy", name, ts, dur, on_stream + "\"memory bandwidth (GB/s)\": " + gb_per_s);
  }

  ms::test::TemporaryFolder folder_;
  Store store_;
};

TEST_F(HtaStreamsTest, GapsOfAStreamByWhatLetItWait) {
  // Idle time of stream 7: 20 us until a late launch, 10 us between kernels, 50 us of another kind; -5 us because the
  // last event starts before its predecessor ends.
  const HtaFrame frame =
      frame_of(launch(1, 0) + "," + kernel(1, 10, 10) + "," + launch(2, 35) + "," + kernel(2, 40, 10) + "," +
               launch(3, 36) + "," + kernel(3, 60, 10) + "," + launch(4, 37) + "," + kernel(4, 120, 10) + "," +
               launch(5, 38) + "," + kernel(5, 125, 10));
  const std::vector<HtaStreamIdle> idle = hta_idle(frame);
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].stream, 7);
  EXPECT_EQ(idle[0].ns[0], 20'000);
  EXPECT_EQ(idle[0].ns[1], 10'000 - 5'000);
  EXPECT_EQ(idle[0].ns[2], 50'000);
  EXPECT_EQ(idle[0].total(), 75'000);
  EXPECT_EQ(hta_idle(frame, 60'000)[0].ns[2], 0) << "the first event waits for nothing";
}

// Expected values are HTA's output: a kernel without its launch, 100 us after the previous one, in a file whose first
// event is later than that, or earlier, or not a slice.
TEST_F(HtaStreamsTest, AKernelWithoutItsLaunchIsThoughtToBeLaunchedByTheFirstEventOfTheFile) {
  const std::string kernels = kernel(1, 10, 10) + "," + kernel(2, 120, 10);
  const auto host_wait = [&](const std::string& first) {
    const std::vector<HtaStreamIdle> idle = hta_idle(frame_of(first + "," + kernels));
    return idle.at(0).ns[0].value_or(0);
  };
  EXPECT_EQ(host_wait(event("cpu_op", "aten::mm", 50, 5, "")), 100'000);
  EXPECT_EQ(host_wait(event("cpu_op", "aten::mm", 5, 5, "")), 0);
  EXPECT_EQ(host_wait(R"({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},)" +
                      event("cpu_op", "aten::mm", 50, 5, "")),
            0);
}

TEST_F(HtaStreamsTest, TheLongestEventBehindDoesNotCountOnlyTheLast) {
  const HtaFrame frame = frame_of(kernel(1, 0, 100) + "," + kernel(2, 10, 10) + "," + kernel(3, 30, 10));
  const std::vector<HtaStreamIdle> idle = hta_idle(frame);
  EXPECT_EQ(idle[0].ns[1], -90'000 + 10'000);
  EXPECT_FALSE(idle[0].ns[0].has_value());
}

TEST_F(HtaStreamsTest, StreamsComeInTheOrderOfTheFile) {
  const HtaFrame frame = frame_of(kernel(1, 50, 10, 20) + "," + kernel(2, 0, 10, 7));
  const std::vector<HtaStreamIdle> idle = hta_idle(frame);
  ASSERT_EQ(idle.size(), 2u);
  EXPECT_EQ(idle[0].stream, 20);
  EXPECT_EQ(idle[1].stream, 7);
}

TEST_F(HtaStreamsTest, LengthsOfTheQueue) {
  const HtaFrame frame = frame_of(launch(1, 0) + "," + launch(2, 5) + "," + kernel(1, 10, 10) + "," +
                                  kernel(2, 20, 10) + "," + launch(3, 30, "cudaGraphLaunch") + "," + kernel(3, 40, 5));
  const std::map<int64_t, HtaSummary> queues = hta_queue_lengths(frame);
  ASSERT_EQ(queues.size(), 1u);
  const HtaSummary& queue = queues.at(7);
  EXPECT_EQ(queue.count, 4) << "1, 2, 1, 0: no graph";
  EXPECT_DOUBLE_EQ(queue.mean, 1);
  EXPECT_DOUBLE_EQ(*queue.std, std::sqrt(2.0 / 3.0));
  EXPECT_DOUBLE_EQ(queue.min, 0);
  EXPECT_DOUBLE_EQ(queue.p25, 0.75);
  EXPECT_DOUBLE_EQ(queue.p75, 1.25);
  EXPECT_DOUBLE_EQ(queue.max, 2);
}

TEST_F(HtaStreamsTest, BandwidthOfWhatCopiesAtOnce) {
  const HtaFrame frame =
      frame_of(copy("Memcpy HtoD (Pageable -> Device)", 0, 10, "2.5") + "," +
               copy("Memcpy HtoD (Pinned -> Device)", 5, 10, "1.5") + "," + copy("Memset (Device)", 20, 0, "8.25") +
               "," + copy("Memcpy DtoH (Device -> Pageable)", 30, 5, "0"));
  const std::map<std::string, HtaSummary> bandwidths = hta_bandwidths(frame);
  ASSERT_EQ(bandwidths.size(), 2u) << "what copies nothing has none";
  const HtaSummary& to_device = bandwidths.at("Memcpy HtoD");
  EXPECT_EQ(to_device.count, 3) << "2.5, 4, 1.5";
  EXPECT_DOUBLE_EQ(to_device.mean, 8.0 / 3);
  EXPECT_DOUBLE_EQ(to_device.p50, 2.5);
  EXPECT_EQ(bandwidths.at("Memset").count, 1);
  EXPECT_FALSE(bandwidths.at("Memset").std.has_value());
}

TEST_F(HtaStreamsTest, WhatTheLastStepLaunchedIsDroppedWithIt) {
  const std::string steps = event("user_annotation", "ProfilerStep#1", 0, 100, "") + "," +
                            event("user_annotation", "ProfilerStep#2", 100, 100, "") + ",";
  const std::string events = steps + launch(1, 10) + "," + kernel(1, 20, 10) + "," + launch(2, 110) + "," +
                             kernel(2, 120, 10) + "," + launch(3, 300) + "," + kernel(3, 310, 10);
  EXPECT_EQ(hta_queue_lengths(frame_of(events, /*keep_last_step=*/false)).at(7).count, 2);
  EXPECT_EQ(hta_queue_lengths(frame_of(events, /*keep_last_step=*/true)).at(7).count, 4);
}

TEST_F(HtaStreamsTest, AHostEventWithAStreamIsOnIt) {
  const HtaFrame frame = frame_of(event("cpu_op", "triton_poi_fused_add", 0, 10, R"("stream": 0)") + "," +
                                  event("cpu_op", "aten::add", 0, 10, "") + "," + kernel(1, 20, 10));
  EXPECT_EQ(frame.on_streams_by_start().size(), 2u);
  EXPECT_EQ(hta_idle(frame).size(), 1u) << "no kernel";
}

}  // namespace
}  // namespace ms::profile
