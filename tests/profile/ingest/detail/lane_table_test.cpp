// Lanes: one per thread and stream, for all kinds of ids, named by metadata anywhere in the file.
#include "profile/ingest/detail/lane_table.h"

#include <gtest/gtest.h>

namespace ms::profile::detail {
namespace {

class LaneTableTest : public testing::Test {
 protected:
  // The text is padded as the reader's buffers are.
  Value value(const std::string& text, Kind kind) {
    texts_.push_back(text + std::string(kScanPadding, '\0'));
    return {texts_.back().data(), static_cast<uint32_t>(text.size()), kind};
  }
  Value number(const std::string& text) { return value(text, Kind::kNumber); }
  Value string(const std::string& text) { return value(text, Kind::kString); }
  uint16_t host(const Value& pid, const Value& tid) {
    ScannedEvent event;
    event.pid = pid;
    event.tid = tid;
    names_.forget();
    return lanes_.host(event);
  }

  std::deque<std::string> texts_;
  RankTrace trace_;
  ValueNames names_{trace_.names};
  LaneTable lanes_{trace_, names_};
};

TEST_F(LaneTableTest, NumbersAreTheSameHoweverTheyAreWritten) {
  const uint16_t lane = host(number("10"), number("11"));
  EXPECT_EQ(host(string("10"), number("11")), lane);
  EXPECT_EQ(host(number("10"), string("0xb")), lane);
  EXPECT_NE(host(number("11"), number("10")), lane);
  EXPECT_NE(host(number("10"), string("eleven")), lane);
  EXPECT_EQ(host({}, {}), host(number("0"), number("0"))) << "missing ones are 0";
  EXPECT_EQ(lanes_.find(false, 10, 11), lane);
  EXPECT_NE(lanes_.find(true, 10, 11), lane) << "a stream is no thread";
  // 2^63 - 1 is above the range of text ids, so it is treated as a text.
  EXPECT_GE(lanes_.id_of(number("9223372036854775807")), kTextLaneId);
}

TEST_F(LaneTableTest, MoreLanesThanTheCacheHolds) {
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(lanes_.find(false, 1, i), i);
  }
  EXPECT_EQ(trace_.lanes.size(), 2000u);
}

TEST_F(LaneTableTest, FurtherLanesShareTheLast) {
  for (int i = 0; i < UINT16_MAX + 10; ++i) lanes_.find(false, 1, i);
  EXPECT_EQ(trace_.lanes.size(), size_t{UINT16_MAX});
  EXPECT_EQ(lanes_.find(false, 1, UINT16_MAX + 5), UINT16_MAX - 1);
  EXPECT_EQ(lanes_.find(false, 1, 7), 7);
}

TEST_F(LaneTableTest, NamesComeFromMetadataOrFromTextIds) {
  const uint16_t text = host(string("CPU functions"), string("worker"));
  const uint16_t numbered = host(number("42"), number("7"));
  lanes_.name_thread(number("42"), number("7"), trace_.names.intern("first"));
  lanes_.name_thread(number("42"), number("7"), trace_.names.intern("last one wins"));
  lanes_.name_process(number("42"), trace_.names.intern("python"));
  lanes_.finish();
  EXPECT_EQ(trace_.names[trace_.lanes[text].name], "worker");
  EXPECT_EQ(trace_.names[trace_.lanes[text].process_name], "CPU functions");
  EXPECT_EQ(trace_.names[trace_.lanes[numbered].name], "last one wins");
  EXPECT_EQ(trace_.names[trace_.lanes[numbered].process_name], "python");
  EXPECT_EQ(trace_.pid, 42);
}

}  // namespace
}  // namespace ms::profile::detail
