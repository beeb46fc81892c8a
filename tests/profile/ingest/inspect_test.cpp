// Impossible data is reported, unusual data is not.
#include "profile/ingest/inspect.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "profile/ingest/chrome_json.h"
#include "tests/profile/analysis/small_trace.h"
#include "tests/support/text_stream.h"

namespace ms::profile {
namespace {

ImportStats inspected(const std::string& events) {
  const std::string text = core::cat("[", events, "]");
  ms::test::TextStream stream(text);
  RankTrace trace;
  FileInfo file;
  ImportStats stats;
  read_chrome_json(stream, "a.json", trace, file, stats);
  inspect_trace(trace, "a.json", stats);
  return stats;
}

int64_t count(const ImportStats& stats, const std::string& kind) {
  const auto found = stats.issues().find(kind);
  return found == stats.issues().end() ? 0 : found->second.count;
}

// `n` events from `ts` on, 10 us apart.
std::string events(int n, int ts) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i == 0 ? "" : ",") + test::event("cpu_op", "op", ts + 10 * i, 5, "");
  return out;
}

TEST(Inspect, NamesTheFewEventsThatAreFarFromAllOthers) {
  EXPECT_EQ(count(inspected(events(100, 1'000'000)), "ts_outlier"), 0);
  EXPECT_EQ(count(inspected(events(1, 0) + "," + events(100, 1'000'000)), "ts_outlier"), 1);
  EXPECT_EQ(count(inspected(events(100, 1'000'000) + "," + events(2, 900'000'000)), "ts_outlier"), 2);
}

TEST(Inspect, ManyEventsFarAwayAreAPartOfTheJob) {
  EXPECT_EQ(count(inspected(events(20, 0) + "," + events(100, 1'000'000)), "ts_outlier"), 0);
  EXPECT_EQ(count(inspected(events(20, 0) + "," + events(100, 1'000'000) + "," + events(1, 900'000'000)), "ts_outlier"),
            1)
      << "the other side";
}

// In unix time, as Kineto writes it: 53 years between ts 0 and the rest.
std::string kernel_at(const std::string& us) {
  return R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": )" + us +
         R"(, "dur": 5, "args": {"device": 0, "stream": 7}})";
}

TEST(Inspect, NamesAKernelAtZeroInATraceOfFewEvents) {
  const std::string three =
      kernel_at("1700000000000010") + "," + kernel_at("1700000000000020") + "," + kernel_at("1700000000000030");
  EXPECT_EQ(count(inspected(three), "ts_outlier"), 0);
  EXPECT_EQ(count(inspected(three + "," + kernel_at("0")), "ts_outlier"), 1);
  EXPECT_EQ(count(inspected(three + "," + kernel_at("3400000000000000")), "ts_outlier"), 1) << "the other end";
  EXPECT_EQ(count(inspected(kernel_at("0") + "," + kernel_at("1700000000000010")), "ts_outlier"), 0)
      << "of two nobody knows which is wrong";
}

TEST(Inspect, NamesAKernelAtZeroWhereAllOthersStartTogether) {
  std::string same;
  for (int i = 0; i < 20; ++i) same += kernel_at("1700000000000010") + ",";
  EXPECT_EQ(count(inspected(same + kernel_at("0")), "ts_outlier"), 1);
}

TEST(Inspect, NamesDurationsThatCannotBe) {
  const std::string steps = events(100, 1'000'000);
  EXPECT_EQ(count(inspected(steps + "," + test::event("cpu_op", "op", 1'002'000, 900'000, "")), "suspicious_dur"), 1);
  EXPECT_EQ(count(inspected(steps + "," + test::event("cpu_op", "op", 1'002'000, 900, "")), "suspicious_dur"), 0);
}

TEST(Inspect, NamesKernelsWithoutALaunch) {
  const auto all = test::launch(1, 10, 2) + "," + test::kernel(1, 20, 5);
  EXPECT_EQ(count(inspected(all), "no_partner"), 0);
  EXPECT_EQ(count(inspected(all + "," + test::kernel(2, 30, 5)), "no_partner"), 1);
}

}  // namespace
}  // namespace ms::profile
