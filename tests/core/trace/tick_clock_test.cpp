// Conversion of ticks to CLOCK_MONOTONIC nanoseconds preserves their order.
#include "core/trace/tick_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/trace/recorder.h"

namespace ms::core::trace {
namespace {

TEST(TickClock, WithoutTimeStampsTicksAreNanoseconds) {
  TickClock clock(false);
  clock.mark();
  for (const int64_t ticks : {int64_t{0}, int64_t{5}, int64_t{1} << 61}) EXPECT_EQ(clock.ns(ticks), ticks);
}

TEST(TickClock, TimeStampsConvertToMonotonicTimeInOrder) {
  if (!time_stamps_are_usable()) GTEST_SKIP() << "the kernel does not keep time by time stamps here";
  const int64_t early = time_stamp();
  TickClock clock(true);
  struct Reading {
    int64_t before_ns, ticks, after_ns;
  };
  std::vector<Reading> readings;
  for (int mark = 0; mark < 20; ++mark) {
    for (int i = 0; i < 500; ++i) {
      const int64_t before = now_ns(), ticks = time_stamp();
      readings.push_back({before, ticks, now_ns()});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    clock.mark();
  }
  int64_t last = clock.ns(early);
  for (const Reading& reading : readings) {
    const int64_t ns = clock.ns(reading.ticks);
    EXPECT_GE(ns, last);
    last = ns;
    // A mark is off by at most half the time of reading the two clocks, the least of five readings.
    EXPECT_GE(ns, reading.before_ns - 2000);
    EXPECT_LE(ns, reading.after_ns + 2000);
  }
}

}  // namespace
}  // namespace ms::core::trace
