// What a trace of ours says beside its events, and what it may not say.
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

}  // namespace
}  // namespace ms::profile
