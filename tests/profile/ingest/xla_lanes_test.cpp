// Device work of XLA, by the names of processes and threads.
#include "profile/ingest/xla_lanes.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "profile/analysis/breakdown.h"
#include "profile/ingest/chrome_json.h"
#include "tests/support/text_stream.h"

namespace ms::profile {
namespace {

using core::cat;

std::string name_of(const char* what, int pid, int tid, const std::string& name) {
  return cat(R"({"ph": "M", "name": ")", what, R"(", "pid": )", pid, R"(, "tid": )", tid, R"(, "args": {"name": ")",
             name, "\"}},");
}
std::string slice(int pid, int tid, const std::string& name, int ts, int dur) {
  return cat(R"({"ph": "X", "pid": )", pid, R"(, "tid": )", tid, R"(, "name": ")", name, R"(", "ts": )", ts,
             R"(, "dur": )", dur, "},");
}
void read(const std::string& events, RankTrace& trace) {
  const std::string text = cat("[", events, R"({"ph": "M", "name": "end"}])");
  ms::test::TextStream stream(text);
  FileInfo file;
  ImportStats stats;
  read_chrome_json(stream, "a.json", trace, file, stats);
}

// As JAX writes it on a TPU: modules, operations and scopes repeat the same time.
TEST(XlaLanes, OperationsOfATpuAreDeviceWorkOnce) {
  RankTrace trace;
  read(name_of("process_name", 3, 0, "/device:TPU:1") + name_of("thread_name", 3, 1, "Steps") +
           name_of("thread_name", 3, 2, "XLA Modules") + name_of("thread_name", 3, 3, "XLA Ops") +
           name_of("process_name", 9, 0, "/host:CPU") + name_of("thread_name", 9, 1, "python") +
           slice(3, 1, "12", 0, 100) + slice(3, 2, "jit_step(1)", 0, 100) + slice(3, 3, "fusion.7", 10, 30) +
           slice(3, 3, "all-reduce.1", 40, 20) + slice(9, 1, "dispatch", 0, 5),
       trace);
  const DeviceView view = view_devices(trace);
  ASSERT_EQ(view.devices.size(), 2u);
  EXPECT_FALSE(view.on_host);
  EXPECT_EQ(view.devices[0].device_class, DeviceClass::kComputation);
  EXPECT_EQ(view.devices[1].device_class, DeviceClass::kCommunication);
  const auto times = breakdown(trace, view);
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->computing, 30'000);
  EXPECT_EQ(times->exposed_communication, 20'000);
  EXPECT_EQ(trace.lanes[trace.events.lane[view.devices[0].event]].process, 1) << "the device's number";
}

// On a GPU, streams hold the device events, and "XLA Ops" is derived from them.
TEST(XlaLanes, StreamsOfAGpuAreDeviceWorkAndDerivedThreadsAreNot) {
  RankTrace trace;
  read(name_of("process_name", 1, 0, "/device:GPU:0") + name_of("thread_name", 1, 14, "Stream #14(Compute)") +
           name_of("thread_name", 1, 15, "Stream #15(MemcpyH2D)") + name_of("thread_name", 1, 99, "XLA Ops") +
           slice(1, 14, "loop_add_fusion", 10, 30) + slice(1, 15, "MemcpyH2D", 50, 10) + slice(1, 99, "add.3", 10, 30),
       trace);
  const DeviceView view = view_devices(trace);
  ASSERT_EQ(view.devices.size(), 2u);
  EXPECT_EQ(view.devices[0].device_class, DeviceClass::kComputation);
  EXPECT_EQ(view.devices[1].device_class, DeviceClass::kMemory);
}

TEST(XlaLanes, OtherTracesStayAsTheyAre) {
  RankTrace trace;
  read(name_of("process_name", 1, 0, "python") + name_of("thread_name", 1, 2, "XLA Ops") + slice(1, 2, "f", 0, 5),
       trace);
  EXPECT_FALSE(trace.lanes.at(trace.events.lane[0]).device);
  EXPECT_EQ(trace.side(0), Side::kHost);
}

}  // namespace
}  // namespace ms::profile
