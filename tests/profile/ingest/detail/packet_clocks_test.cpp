// Conversion of several clocks to trace time: with and without snapshots, and for invalid times.
#include "profile/ingest/detail/packet_clocks.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "profile/report/protobuf_writer.h"

namespace ms::profile::detail {
namespace {

namespace fields = perfetto::clock_snapshot;
using namespace protobuf;

struct Reading {
  uint64_t id, timestamp, multiplier = 0;
  bool incremental = false;
};

std::string snapshot(std::initializer_list<Reading> readings, uint64_t primary = 0) {
  std::string out;
  for (const Reading& reading : readings) {
    std::string clock;
    put_integer(clock, fields::kClockId, reading.id);
    put_integer(clock, fields::kTimestamp, reading.timestamp);
    if (reading.multiplier != 0) put_integer(clock, fields::kUnitMultiplier, reading.multiplier);
    if (reading.incremental) put_integer(clock, fields::kIsIncremental, 1);
    put_bytes(out, fields::kClocks, clock);
  }
  if (primary != 0) put_integer(out, fields::kPrimaryClock, primary);
  return out;
}

int64_t ns(const std::optional<PacketClocks::Time>& time) { return time && time->known ? time->ns : -1; }

TEST(PacketClocks, WithoutASnapshotTimesAreAsTheyStand) {
  PacketClocks clocks;
  EXPECT_EQ(ns(clocks.to_trace(1, 0, 5)), 5);
  EXPECT_EQ(ns(clocks.to_trace(1, perfetto::kBoottimeClock, 6)), 6);
  const auto other = clocks.to_trace(1, 3, 7);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->ns, 7);
  EXPECT_FALSE(other->known);
  EXPECT_FALSE(clocks.unix_base().has_value());
}

TEST(PacketClocks, TheLastSnapshotCounts) {
  PacketClocks clocks;
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{3, 100}, {6, 1000}, {1, 50'000}})));
  EXPECT_EQ(ns(clocks.to_trace(2, 3, 110)), 1010);
  EXPECT_EQ(clocks.unix_base(), 49'000);
  // Related through a clock that an earlier snapshot contains.
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{3, 200}, {4, 7}})));
  EXPECT_EQ(ns(clocks.to_trace(1, 4, 8)), 1101);
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{3, 300}, {6, 1300}, {1, 60'000}})));
  EXPECT_EQ(ns(clocks.to_trace(1, 3, 310)), 1310);
  EXPECT_EQ(clocks.unix_base(), 49'000) << "of the first";
}

TEST(PacketClocks, ASnapshotMayNameTheTracesClock) {
  PacketClocks clocks;
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{6, 1000}, {3, 100}}, /*primary=*/3)));
  EXPECT_EQ(ns(clocks.to_trace(1, 0, 110)), 110);
  EXPECT_EQ(ns(clocks.to_trace(1, 6, 1010)), 110);
}

TEST(PacketClocks, ClocksOfASequenceCountOnByThemselves) {
  PacketClocks clocks;
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{6, 5000}, {64, 5, 1000, true}})));
  ASSERT_TRUE(clocks.read_snapshot(2, snapshot({{6, 9000}, {64, 1, 1, true}})));
  EXPECT_EQ(ns(clocks.to_trace(1, 64, 2)), 7000);
  EXPECT_EQ(ns(clocks.to_trace(2, 64, 2)), 9002);
  EXPECT_EQ(ns(clocks.to_trace(1, 64, 1)), 8000);
  EXPECT_FALSE(clocks.to_trace(3, 64, 1)->known);
}

TEST(PacketClocks, WhatIsNoTimeIsRefused) {
  constexpr uint64_t kFar = uint64_t{1} << 62;
  PacketClocks clocks;
  EXPECT_FALSE(clocks.to_trace(1, 0, kFar).has_value());
  EXPECT_TRUE(clocks.to_trace(1, 0, kFar - 1).has_value());
  EXPECT_FALSE(clocks.read_snapshot(1, snapshot({{3, kFar}, {6, 0}})));
  EXPECT_FALSE(clocks.read_snapshot(1, snapshot({{3, kFar / 2, 4}, {6, 0}})));
  EXPECT_FALSE(clocks.read_snapshot(1, "\x0a\x7f"));
  EXPECT_FALSE(clocks.to_trace(1, 3, 0)->known) << "nothing of them is kept";
  ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{3, 0}, {6, kFar - 1}, {64, kFar - 1, 1, true}})));
  EXPECT_FALSE(clocks.to_trace(1, 3, 5).has_value());
  EXPECT_FALSE(clocks.to_trace(1, 64, 5).has_value());
  // Chains of snapshots must not move a time beyond the limit.
  for (uint64_t id = 10; id < 20; ++id) {
    ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{id, kFar - 1}, {id + 1, 0}})));
    ASSERT_TRUE(clocks.read_snapshot(1, snapshot({{3, kFar - 1}, {id, 0}})));
    EXPECT_LT(clocks.to_trace(1, id, kFar - 1).value_or(PacketClocks::Time()).ns, static_cast<int64_t>(kFar));
  }
}

}  // namespace
}  // namespace ms::profile::detail
