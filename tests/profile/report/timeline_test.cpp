// The picture of a trace: covered shares and classes by column, the lanes that matter, and the steps in full detail.
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
  Timeline draw(size_t columns, size_t max_lanes = 10, size_t max_slices = 100) {
    maker_.finish();
    store_ = load({folder_.path().string()}, {});
    view_ = view_devices(*store_.ranks[0]);
    return make_timeline({{store_.ranks[0].get(), &view_}}, columns, max_lanes, max_slices);
  }

  test::TemporaryFolder folder_;
  test::TraceMaker maker_{folder_.path(), 0, 1};
  Store store_;
  DeviceView view_;
};

TEST_F(TimelineTest, SharesAndClassesOfColumns) {
  maker_.host("ProfilerStep#1", 0, 1000);
  maker_.kernel("gemm", 0, 250);
  maker_.copy("Memcpy", 300, 320);
  maker_.kernel("norm", 500, 1000);
  const Timeline drawn = draw(10);
  EXPECT_EQ(drawn.end - drawn.start, 1000);
  ASSERT_EQ(drawn.lanes.size(), 3u);
  EXPECT_FALSE(drawn.lanes[0].device) << "of a rank, the host comes first";
  EXPECT_EQ(drawn.lanes[0].name, "main");
  EXPECT_THAT(drawn.lanes[0].klass, testing::Each(3));
  EXPECT_EQ(drawn.lanes[1].name, "stream 7");
  EXPECT_THAT(drawn.lanes[1].share, ElementsAre(9, 9, 4, 0, 0, 9, 9, 9, 9, 9));
  EXPECT_THAT(drawn.lanes[2].share, ElementsAre(0, 0, 0, 1, 0, 0, 0, 0, 0, 0)) << "a fifth of a column";
  EXPECT_EQ(drawn.lanes[2].klass[3], 2) << "memory";
}

TEST_F(TimelineTest, WhatNestsCoversItsTimeOnce) {
  maker_.host("ProfilerStep#1", 0, 1000);
  maker_.host("forward", 0, 500);
  maker_.host("layer", 100, 400);
  EXPECT_THAT(draw(4).lanes.at(0).share, ElementsAre(9, 9, 9, 9));
}

TEST_F(TimelineTest, DetailIsOfTheSlowestAndTheMedianStep) {
  for (int i = 0; i < 5; ++i) {  // lengths 100, 200, ... 500
    maker_.host(core::cat("ProfilerStep#", i), 1000 * i, 1000 * i + 100 * (i + 1));
    maker_.kernel(core::cat("kernel", i), 1000 * i + 10, 1000 * i + 20);
  }
  const Timeline drawn = draw(8);
  std::vector<std::string> names;
  for (const TimelineSlice& slice : drawn.slices) names.push_back(drawn.names[slice.name]);
  EXPECT_THAT(names, testing::UnorderedElementsAre("ProfilerStep#2", "kernel2", "ProfilerStep#4", "kernel4"));
}

TEST_F(TimelineTest, KeepsToItsBounds) {
  for (int i = 0; i < 30; ++i) maker_.host("op", 10 * i, 10 * i + 5, 100 + i);
  for (int i = 0; i < 30; ++i) maker_.kernel("gemm", 10 * i, 10 * i + 5);
  const Timeline drawn = draw(8, 4, 7);
  ASSERT_EQ(drawn.lanes.size(), 4u);
  EXPECT_EQ(std::count_if(drawn.lanes.begin(), drawn.lanes.end(), [](const auto& lane) { return lane.device; }), 1)
      << "devices before threads";
  EXPECT_EQ(drawn.slices.size(), 7u);
}

TEST_F(TimelineTest, NothingIsDrawnOfNothing) {
  const Timeline drawn = draw(8);
  EXPECT_TRUE(drawn.lanes.empty());
  EXPECT_TRUE(drawn.slices.empty());
}

}  // namespace
}  // namespace ms::profile
