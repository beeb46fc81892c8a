// Computing and communication in CPU-only traces.
#include "profile/analysis/host_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "profile/ingest/chrome_json.h"
#include "tests/support/text_stream.h"

namespace ms::profile {
namespace {

class HostDevicesTest : public testing::Test {
 protected:
  // Times in us; thread 1 is the main one.
  void op(const std::string& name, int ts, int end, int thread = 1, const std::string& category = "cpu_op") {
    events_ += core::cat(events_.empty() ? "" : ",\n", R"({"ph": "X", "pid": 1, "tid": )", thread, R"(, "cat": ")",
                         category, R"(", "name": ")", name, R"(", "ts": )", ts, R"(, "dur": )", end - ts, "}");
  }
  void annotation(const std::string& name, int ts, int end, int thread = 1) {
    op(name, ts, end, thread, "user_annotation");
  }
  // Names in the order of host_devices(), with "*" after those of communication.
  std::vector<std::string> found() {
    const std::string text = core::cat("[", events_, "]");
    test::TextStream stream(text);
    RankTrace trace;
    FileInfo file;
    ImportStats stats;
    read_chrome_json(stream, "a.json", trace, file, stats);
    std::vector<std::string> out;
    for (const DeviceEvent& device : host_devices(trace)) {
      EXPECT_EQ(device.launch, kNoLaunch);
      EXPECT_EQ(device.step, kNoStep);
      out.push_back(trace.names[trace.events.name[device.event]] +
                    (device.device_class == DeviceClass::kCommunication ? "*" : ""));
    }
    return out;
  }

  std::string events_;
};

using Names = std::vector<std::string>;

TEST_F(HostDevicesTest, OutermostOperatorWithLessThanHalfInChildrenComputes) {
  op("aten::linear", 0, 100);  // children cover 90: they are examined
  op("aten::addmm", 5, 95);    // children cover 10: it counts, nothing below it does
  op("aten::expand", 10, 20);
  op("aten::relu", 200, 210);
  EXPECT_EQ(found(), (Names{"aten::addmm", "aten::relu"}));
}

TEST_F(HostDevicesTest, ExactlyHalfInChildrenIsLookedInto) {
  op("outer", 0, 100);
  op("inner", 0, 50);
  EXPECT_EQ(found(), (Names{"inner"}));
}

TEST_F(HostDevicesTest, CallsOfACommunicatorAreCommunication) {
  op("aten::mm", 0, 100);
  annotation("gloo:all_reduce", 50, 150, 2);
  annotation("mpi:send", 160, 170, 2);
  EXPECT_EQ(found(), (Names{"aten::mm", "gloo:all_reduce*", "mpi:send*"}));
}

TEST_F(HostDevicesTest, OperatorsThatHandOverOrHoldCommunicationAreNotComputing) {
  op("c10d::allreduce_", 0, 100);
  op("aten::view", 10, 20);  // below the submitting operator
  op("_c10d_functional::wait_tensor", 110, 120);
  op("DDP.forward", 200, 300);  // contains a communicator call, so its children are examined
  op("aten::mm", 210, 220);
  op("record_param_comms", 230, 240);
  EXPECT_EQ(found(), (Names{"aten::mm"}));
}

TEST_F(HostDevicesTest, OperatorsOfTheCommunicatorsThreadAreNotComputing) {
  op("c10d::allreduce_", 0, 10);
  annotation("gloo:all_reduce", 10, 100, 2);
  op("aten::add_", 100, 120, 2);
  op("aten::mm", 20, 90);
  EXPECT_EQ(found(), (Names{"gloo:all_reduce*", "aten::mm"}));
}

TEST_F(HostDevicesTest, AThreadThatAsksForItsOwnCallsStillComputes) {
  op("c10d::send", 0, 30);
  annotation("gloo:send", 5, 25);
  op("aten::mm", 40, 90);
  EXPECT_EQ(found(), (Names{"gloo:send*", "aten::mm"}));
}

TEST_F(HostDevicesTest, OperatorsOfADataLoaderAreNotComputing) {
  annotation("ProfilerStep#1", 0, 200);
  annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 60);
  op("aten::stack", 20, 50);
  op("aten::mm", 70, 150);
  EXPECT_EQ(found(), (Names{"aten::mm"}));
}

TEST_F(HostDevicesTest, ThreadsCountOnTheirOwn) {
  op("forward", 0, 50, 1);
  op("backward", 20, 90, 2);
  EXPECT_EQ(found(), (Names{"forward", "backward"})) << "in order of their starts";
}

}  // namespace
}  // namespace ms::profile
