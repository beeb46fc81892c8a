// What a page draws of a trace: nested rows, launches joined to kernels, the slices that matter most where room is
// short.
#include "profile/report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using testing::ElementsAre;

class TimelineTest : public testing::Test {
 protected:
  Timeline draw(const TimelineLimits& limits = {}) {
    maker_.finish();
    store_ = load({folder_.path().string()}, {});
    view_ = view_devices(*store_.ranks[0]);
    return make_timeline({{store_.ranks[0].get(), &view_, {}}}, limits);
  }
  static std::vector<std::string> names(const Timeline& drawn, const TimelineLane& lane) {
    std::vector<std::string> out;
    for (const TimelineSlice& slice : lane.slices) out.push_back(drawn.names[slice.name].text);
    return out;
  }
  static std::vector<int> depths(const TimelineLane& lane) {
    std::vector<int> out;
    for (const TimelineSlice& slice : lane.slices) out.push_back(slice.depth);
    return out;
  }

  test::TemporaryFolder folder_;
  test::TraceMaker maker_{folder_.path(), 0, 1};
  Store store_;
  DeviceView view_;
};

TEST_F(TimelineTest, DeviceLanesStandBeforeThreads) {
  maker_.host("ProfilerStep#1", 0, 1000);
  maker_.kernel("gemm", 0, 250);
  maker_.copy("Memcpy", 300, 320);
  const Timeline drawn = draw();
  EXPECT_EQ(drawn.end - drawn.start, 1000);
  const std::vector<TimelineLane>& lanes = drawn.ranks.at(0).lanes;
  ASSERT_EQ(lanes.size(), 3u);
  EXPECT_EQ(lanes[0].name, "stream 7") << "the busiest stream first";
  EXPECT_EQ(lanes[1].name, "stream 21");
  EXPECT_EQ(lanes[2].name, "main");
  EXPECT_TRUE(lanes[1].device);
  EXPECT_FALSE(lanes[2].device);
  EXPECT_EQ(drawn.names[lanes[0].slices[0].name].klass, 0);
  EXPECT_EQ(drawn.names[lanes[1].slices[0].name].klass, 2);
  EXPECT_EQ(drawn.names[lanes[2].slices[0].name].klass, 3);
}

TEST_F(TimelineTest, NestedSlicesHaveRowsByDepth) {
  maker_.host("ProfilerStep#1", 0, 1000);
  maker_.host("forward", 0, 500);
  maker_.host("layer", 100, 400);
  maker_.host("norm", 100, 150);
  maker_.host("mlp", 150, 400);
  maker_.host("backward", 500, 900);
  const Timeline drawn = draw();
  const TimelineLane& lane = drawn.ranks.at(0).lanes.at(0);
  EXPECT_EQ(lane.depth, 4);
  EXPECT_THAT(names(drawn, lane), ElementsAre("ProfilerStep#1", "forward", "layer", "norm", "mlp", "backward"));
  EXPECT_THAT(depths(lane), ElementsAre(0, 1, 2, 3, 3, 1));
}

TEST_F(TimelineTest, OverlappingSlicesNeverShareARow) {
  maker_.kernel("a", 0, 100);
  maker_.kernel("b", 50, 150);
  maker_.kernel("c", 120, 130);
  maker_.kernel("d", 150, 160);
  const TimelineLane lane = draw().ranks.at(0).lanes.at(0);
  EXPECT_THAT(depths(lane), ElementsAre(0, 1, 2, 0));
}

TEST_F(TimelineTest, FlowsJoinLaunchesToTheirKernels) {
  maker_.launch(1, 0, 10);
  maker_.launch(2, 10, 20);
  maker_.kernel("first", 100, 200, 1);
  maker_.kernel("second", 200, 300, 2);
  maker_.kernel("without a launch", 300, 400);
  const Timeline drawn = draw();
  const std::vector<TimelineFlow>& flows = drawn.ranks.at(0).flows;
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0].device, 0u) << "the device's lane comes first";
  EXPECT_EQ(flows[0].launch, 3u);
  EXPECT_EQ(flows[1].device, 1u);
  EXPECT_EQ(flows[1].launch, 4u);
}

TEST_F(TimelineTest, SlowestAndMedianStepComeFirstDevicesBeforeTheHost) {
  for (int i = 0; i < 5; ++i) {  // lengths 100, 200, ... 500
    maker_.host(core::cat("ProfilerStep#", i), 1000 * i, 1000 * i + 100 * (i + 1));
    maker_.kernel(core::cat("kernel", i), 1000 * i + 10, 1000 * i + 20);
  }
  TimelineLimits limits;
  limits.slices = 3;
  const Timeline drawn = draw(limits);
  const TimelineRank& rank = drawn.ranks.at(0);
  EXPECT_EQ(rank.events, 10);
  EXPECT_EQ(rank.slices, 3);
  EXPECT_THAT(names(drawn, rank.lanes.at(0)), ElementsAre("kernel2", "kernel4"));
  EXPECT_THAT(names(drawn, rank.lanes.at(1)), ElementsAre("ProfilerStep#4"));
}

TEST_F(TimelineTest, LanesThatLostSlicesCarryTheShareOfEachColumn) {
  maker_.kernel("gemm", 0, 250);
  maker_.kernel("norm", 500, 1000);
  maker_.kernel("tiny", 300, 320);
  TimelineLimits limits;
  limits.slices = 1;
  limits.columns = 10;
  const TimelineLane lane = draw(limits).ranks.at(0).lanes.at(0);
  EXPECT_FALSE(lane.whole);
  EXPECT_THAT(lane.share, ElementsAre(9, 9, 4, 1, 0, 9, 9, 9, 9, 9));
}

TEST_F(TimelineTest, WholeLanesCarryNoShares) {
  maker_.kernel("gemm", 0, 250);
  const TimelineLane lane = draw().ranks.at(0).lanes.at(0);
  EXPECT_TRUE(lane.whole);
  EXPECT_TRUE(lane.share.empty());
}

TEST_F(TimelineTest, NamesStayWithinTheirBytes) {
  for (int i = 0; i < 100; ++i) maker_.kernel(core::cat("kernel_", i, std::string(60, 'x')), 10 * i, 10 * i + 5);
  TimelineLimits limits;
  limits.name_bytes = 1000;
  const Timeline drawn = draw(limits);
  size_t bytes = 0;
  for (const TimelineName& name : drawn.names) bytes += name.text.size() + name.whole.size();
  EXPECT_LE(bytes, 1000u);
  EXPECT_GT(drawn.names.size(), 5u);
  EXPECT_EQ(static_cast<size_t>(drawn.ranks.at(0).slices), drawn.names.size());
}

TEST_F(TimelineTest, FewLanesHoldStreamsAndThreads) {
  for (int i = 0; i < 30; ++i) maker_.host("op", 10 * i, 10 * i + 5, 100 + i);
  for (int i = 0; i < 30; ++i) maker_.kernel("gemm", 10 * i, 10 * i + 5);
  TimelineLimits limits;
  limits.lanes = 4;
  const Timeline drawn = draw(limits);
  const std::vector<TimelineLane>& lanes = drawn.ranks.at(0).lanes;
  ASSERT_EQ(lanes.size(), 4u);
  EXPECT_EQ(std::count_if(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.device; }), 1);
}

TEST_F(TimelineTest, LongNamesAreShownReadableAndWhole) {
  maker_.kernel("void at::native::vectorized_elementwise_kernel<4, float>(int, float)", 0, 10);
  const Timeline drawn = draw();
  EXPECT_EQ(drawn.names.at(0).text, "vectorized_elementwise_kernel<4, float>");
  EXPECT_EQ(drawn.names.at(0).whole, "void at::native::vectorized_elementwise_kernel<4, float>(int, float)");
}

TEST_F(TimelineTest, NothingIsDrawnOfNothing) { EXPECT_TRUE(draw().ranks.empty()); }

TEST(Timeline, RanksThatWantLittleLeaveTheirPartToTheOthers) {
  const test::TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    test::TraceMaker maker(folder.path(), rank, 2);
    for (int i = 0; i < (rank == 0 ? 90 : 5); ++i) maker.kernel("gemm", 10 * i, 10 * i + 5);
    maker.finish();
  }
  const Store store = load({folder.path().string()}, {});
  const std::vector<DeviceView> views = {view_devices(*store.ranks[0]), view_devices(*store.ranks[1])};
  TimelineLimits limits;
  limits.slices = 50;
  const Timeline drawn =
      make_timeline({{store.ranks[0].get(), &views[0], {}}, {store.ranks[1].get(), &views[1], {}}}, limits);
  EXPECT_EQ(drawn.ranks.at(0).slices, 45);
  EXPECT_EQ(drawn.ranks.at(1).slices, 5);
}

}  // namespace
}  // namespace ms::profile
