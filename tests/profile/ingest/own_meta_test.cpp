// Metadata of native traces: what is read, and which values are refused.
#include "profile/ingest/own_meta.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

nlohmann::json meta() {
  return {{"rank", 3},   {"world_size", 8}, {"level", "level1"}, {"pid", 42}, {"start_clocks_ns", {1000u, 5000u}},
          {"chunks", 2}, {"events", 9}};
}

TEST(OwnMeta, RankClockAndWhatIsKept) {
  RankTrace trace;
  read_own_meta(meta(), trace);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 8);
  EXPECT_EQ(trace.pid, 42);
  EXPECT_EQ(trace.base_unix_ns, 4000);
  EXPECT_TRUE(trace.has_base);
  const auto kept = nlohmann::json::parse(trace.meta);
  EXPECT_FALSE(kept.contains("chunks")) << "of the file, not of the trace";
  EXPECT_EQ(kept.at("level"), "level1");
}

TEST(OwnMeta, LiesAreCorruptData) {
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, nlohmann::json>>{{"rank", -1},
                                                                     {"world_size", int64_t{1} << 40},
                                                                     {"pid", "x"},
                                                                     {"start_clocks_ns", {1u}},
                                                                     {"start_clocks_ns", {-1, 5u}},
                                                                     {"level", std::string(1 << 17, 'x')}}) {
    nlohmann::json lying = meta();
    lying[key] = value;
    RankTrace trace;
    EXPECT_EQ(test::thrown_by([&] { read_own_meta(lying, trace); }).code, core::ErrorCode::kCorruptData) << key;
  }
  EXPECT_EQ(read_own_clock({{"at_ns", 1}, {"offset_ns", -2}, {"error_ns", -1}}).offset, -2);
  EXPECT_EQ(test::thrown_by([] {
              read_own_clock({{"at_ns", 1}, {"offset_ns", 2}});
            }).code,
            core::ErrorCode::kCorruptData);
}

TEST(OwnMeta, TheWholeOfItInOtherFormats) {
  const nlohmann::json clock = {{"at_ns", 1}, {"offset_ns", -2}, {"error_ns", 3}};
  const nlohmann::json own = {{"origin_ns", 700}, {"clocks", {clock}}, {"meta", meta()}};
  RankTrace trace;
  const OwnTimes times = read_own_info(own, trace);
  EXPECT_EQ(times.origin, 700);
  EXPECT_EQ(times.base_unix, 4000);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.level, "level1");
  EXPECT_EQ(trace.clocks.at(0).offset, -2);
  EXPECT_FALSE(trace.has_base);
  for (const char* key : {"origin_ns", "clocks", "meta"}) {
    nlohmann::json lying = own;
    lying.erase(key);
    RankTrace untouched;
    EXPECT_EQ(test::thrown_by([&] { read_own_info(lying, untouched); }).code, core::ErrorCode::kCorruptData) << key;
    EXPECT_EQ(untouched.rank, -1);
    EXPECT_TRUE(untouched.meta.empty());
  }
}

TEST(OwnMeta, TimesThatCannotBeMovedStay) {
  constexpr int64_t kLimit = int64_t{1} << 60;
  RankTrace trace;
  trace.events.ts.push_back(5);
  trace.events.dur.push_back(1);
  trace.memory.push_back({.ts = 6});
  trace.counters.push_back({.ts = 7});
  EXPECT_FALSE(shift_times(trace, 2 * kLimit));
  EXPECT_FALSE(shift_times(trace, -2 * kLimit));
  EXPECT_TRUE(shift_times(trace, 100));
  EXPECT_EQ(trace.events.ts[0], 105);
  EXPECT_EQ(trace.memory[0].ts, 106);
  EXPECT_EQ(trace.counters[0].ts, 107);
  trace.counters[0].ts = kLimit;
  EXPECT_FALSE(shift_times(trace, 1));
  EXPECT_EQ(trace.events.ts[0], 105);
}

}  // namespace
}  // namespace ms::profile
