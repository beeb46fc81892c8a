// Sorting, clocks, joining files of one rank, and JSON text.
#include "profile/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "profile/clock_line.h"
#include "profile/ingest/load.h"
#include "profile/ingest/sniff.h"
#include "profile/report/csv_report.h"
#include "profile/report/json_writer.h"
#include "profile/report/table.h"
#include "profile/sort.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

TEST(OrderByStart, IsTheStableOrderLongerFirst) {
  std::mt19937 random(11);
  for (const size_t n : {0, 1, 2, 3, 17, 1000}) {
    for (const unsigned distinct : {1u, 5u, 100000u}) {
      Column<int64_t> ts, dur;
      for (size_t i = 0; i < n; ++i) {
        ts.push_back(static_cast<int64_t>(random() % distinct));
        dur.push_back(static_cast<int64_t>(random() % 3));
      }
      std::vector<uint32_t> wanted(n);
      std::iota(wanted.begin(), wanted.end(), 0u);
      std::stable_sort(wanted.begin(), wanted.end(),
                       [&](uint32_t a, uint32_t b) { return std::pair(ts[a], -dur[a]) < std::pair(ts[b], -dur[b]); });
      EXPECT_THAT(order_by_start(ts, dur), testing::ElementsAreArray(wanted)) << n << " " << distinct;
    }
  }
}

TEST(ClockLine, IsExactOverDays) {
  const int64_t day = 86'400'000'000'000;
  const ClockLine line({{0, 1000, 20}, {day, 1000 + 864'000, 30}});  // 10 ppm/1000
  EXPECT_EQ(line.offset_at(0), 1000);
  EXPECT_EQ(line.offset_at(day), 865'000);
  EXPECT_EQ(line.offset_at(day / 2), 433'000);
  EXPECT_EQ(line.offset_at(-day), 1000 - 864'000);
  EXPECT_EQ(line.to_reference(100'000'000), 100'000'000 - 1001);
  EXPECT_EQ(line.error_ns(), 30);
  EXPECT_DOUBLE_EQ(line.drift_ppm(), 0.01);
}

TEST(ClockLine, OneOrNoMeasurement) {
  EXPECT_EQ(ClockLine(std::vector<ClockPoint>{}).to_reference(7), 7);
  EXPECT_EQ(ClockLine(std::vector<ClockPoint>{}).error_ns(), -1);
  const ClockLine one({{500, -40, 3}});
  EXPECT_EQ(one.to_reference(1'000'000), 1'000'040);
}

TEST(Load, JoinsFilesOfOneRankThatFollowEachOther) {
  const test::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const int64_t part : {1, 0}) {  // the later one first
    test::TraceMaker maker(folder.path() / core::cat(part), 0, 1);
    maker.kernel(part == 0 ? "first" : "second", 1000 * part, 1000 * part + 10, 1, 5);
    maker.launch(1, 1000 * part - 5, 1000 * part - 1);
    maker.comm("allreduce", "tp", {0, 1}, 1000 * part + 20, 1000 * part + 30);
    paths.push_back(maker.finish());
  }
  const Store store = load(paths, {});
  ASSERT_EQ(store.ranks.size(), 1u);
  const RankTrace& trace = *store.ranks[0];
  ASSERT_EQ(trace.events.size(), 6u);
  EXPECT_TRUE(std::is_sorted(trace.events.ts.begin(), trace.events.ts.end()));
  EXPECT_EQ(trace.names[trace.events.name[1]], "first");
  EXPECT_EQ(trace.names[trace.events.name[4]], "second");
  EXPECT_EQ(trace.details[trace.events.details[4]].flops, 5);
  EXPECT_EQ(trace.events.correlation[3], trace.events.correlation[4]);
  EXPECT_NE(trace.events.correlation[0], trace.events.correlation[3]) << "correlations of two files are not the same";
  EXPECT_EQ(trace.names[trace.comms[trace.events.comm[5]].op], "allreduce");
  EXPECT_EQ(trace.lanes.size(), 3u) << "lanes are joined";
}

TEST(Load, LooksAFewFoldersDeepOnly) {
  const test::TemporaryFolder folder;
  const auto make = [&](const std::string& where) {
    std::filesystem::create_directories(folder.path() / where);
    test::TraceMaker maker(folder.path() / where, 0, 1);
    maker.kernel("k", 0, 10, 1, 5);
    maker.finish();
  };
  make("deep/2/3/4/5");
  EXPECT_EQ(test::code_of([&] { load({folder.path().string()}, {}); }), core::ErrorCode::kNotFound);
  make("deep/2/3/4");
  EXPECT_EQ(load({folder.path().string()}, {}).ranks.size(), 1u);
}

TEST(Sniff, ByContentAlone) {
  EXPECT_EQ(sniff("MSTRACE1MSCK"), Format::kNative);
  EXPECT_EQ(sniff("\x1f\x8b\x08"), Format::kGzip);
  EXPECT_EQ(sniff("\x28\xb5\x2f\xfd"), Format::kZstd);
  EXPECT_EQ(sniff("\xef\xbb\xbf \n {\"traceEvents\""), Format::kChromeJson);
  EXPECT_EQ(sniff("[{\"ph\""), Format::kChromeJson);
  EXPECT_EQ(sniff(std::string(64, ' ')), Format::kChromeJson);
  EXPECT_EQ(sniff(std::string_view("SQLite format 3\0....", 20)), Format::kSqlite);
  EXPECT_EQ(sniff("hello"), Format::kUnknown);
  EXPECT_EQ(sniff("MSTRACE"), Format::kUnknown);
  EXPECT_EQ(sniff(""), Format::kUnknown);
}

TEST(JsonString, IsAlwaysValidUtf8) {
  EXPECT_EQ(json_string("a\"b\\c\n\t\x01"), "\"a\\\"b\\\\c\\n\\t\\u0001\"");
  EXPECT_EQ(json_string("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
  EXPECT_EQ(json_string("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(json_string("\xc3"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(json_string("\xed\xa0\x80").size(), 2u + 9u) << "a surrogate is three bad bytes";
  EXPECT_EQ(json_string("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\"");
}

TEST(Microseconds, AreExact) {
  EXPECT_EQ(microseconds(0), "0.000");
  EXPECT_EQ(microseconds(1), "0.001");
  EXPECT_EQ(microseconds(-1), "-0.001");
  EXPECT_EQ(microseconds(1'736'408'883'696'741'123), "1736408883696741.123");
  EXPECT_EQ(microseconds(INT64_MIN), "-9223372036854775.808");
}

TEST(Csv, QuotesWhatMustBe) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("(0, 1)"), "\"(0, 1)\"");
  EXPECT_EQ(csv_cell("a\"b"), "\"a\"\"b\"");
}

TEST(Shorten, CutsTheMiddle) {
  EXPECT_EQ(shorten("short", 10), "short");
  EXPECT_EQ(shorten("abcdefghijklmnop", 10), "abcd..mnop");
  EXPECT_EQ(shorten("a\x1b[31m", 20), "a?[31m") << "no escape sequences reach the terminal";
}

}  // namespace
}  // namespace ms::profile
