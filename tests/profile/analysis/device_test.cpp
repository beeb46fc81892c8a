// The step that a device event belongs to.
#include "profile/analysis/device.h"

#include <gtest/gtest.h>

#include <string>

#include "profile/ingest/chrome_json.h"
#include "profile/ingest/kineto_words.h"
#include "tests/profile/analysis/small_trace.h"
#include "tests/support/text_stream.h"

namespace ms::profile {
namespace {

void read(const std::string& events, RankTrace& trace) {
  const std::string text = "[" + events + "]";
  ms::test::TextStream stream(text);
  FileInfo file;
  ImportStats stats;
  read_chrome_json(stream, "a.json", trace, file, stats);
}

const std::string kSteps = test::event("user_annotation", "ProfilerStep#3", 100, 100, "") + "," +
                           test::event("user_annotation", "ProfilerStep#4", 200, 100, "");

TEST(ViewDevices, KernelBelongsToTheStepOfItsLaunch) {
  RankTrace trace;
  read(kSteps + "," + test::launch(10, 190, 5) + "," + test::kernel(10, 210, 20), trace);
  const DeviceView view = view_devices(trace);
  ASSERT_EQ(view.devices.size(), 1u);
  EXPECT_EQ(view.devices[0].step, 0) << "runs in step 4, launched in step 3";
}

// Kernel 11's launch is missing although others before it are recorded: the profiler dropped it, and the kernel stays.
TEST(ViewDevices, KernelWhoseLaunchWasDroppedBelongsToTheStepInWhichItRuns) {
  RankTrace trace;
  read(kSteps + "," + test::launch(10, 110, 5) + "," + test::kernel(10, 120, 20) + "," + test::kernel(11, 210, 20),
       trace);
  EXPECT_EQ(view_devices(trace).devices.at(1).step, 1);
}

TEST(ViewDevices, WithoutLaunchesKernelsBelongToTheStepsInWhichTheyRun) {
  RankTrace trace;
  read(kSteps + "," + test::kernel(9, 110, 40), trace);
  EXPECT_EQ(view_devices(trace).devices.at(0).step, 0);
}

// Ids that do not fit are numbered downwards, so their order has no meaning.
TEST(LaunchedBefore, IdsWithoutAnOrderSayNothing) {
  EXPECT_TRUE(launched_before(9, 10));
  EXPECT_FALSE(launched_before(10, 10));
  EXPECT_FALSE(launched_before(0, 10)) << "no correlation";
  EXPECT_FALSE(launched_before(9, 0)) << "no launches";
  EXPECT_FALSE(launched_before(UINT32_MAX - 3, UINT32_MAX - 1));
}

}  // namespace
}  // namespace ms::profile
