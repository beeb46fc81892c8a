// Loading files into a store: which files are combined, and which warnings are given.
#include "profile/ingest/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

class LoadTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    ms::test::write_file(folder_ / name, text);
    return folder_ / name;
  }
  // One kernel of rank 0 that starts `s` seconds after 2024-05-01 12:00:00 UTC.
  std::string kernel_at(const std::string& name, int64_t s) {
    return write(name, core::cat(R"({"distributedInfo": {"rank": 0}, "traceEvents": [{"ph": "X", "cat": "kernel", )",
                                 R"("name": "gemm", "pid": 0, "tid": 7, "ts": )", (1'714'564'800 + s) * 1'000'000,
                                 R"(, "dur": 5, "args": {"device": 0, "stream": 7}}]})"));
  }
  static std::string example(const Store& store, const std::string& kind) {
    const auto found = store.stats.issues().find(kind);
    return found == store.stats.issues().end() ? std::string() : found->second.example;
  }

  ms::test::TemporaryFolder folder_;
};

TEST_F(LoadTest, FilesOfOneRankHoursApartAreJoinedWithAWarningThatNamesBothTimes) {
  const std::string first = kernel_at("a.json", 0), second = kernel_at("b.json", 3 * 3600 + 61);
  for (const auto& paths : {std::vector{first, second}, std::vector{second, first}}) {
    const Store store = load(paths, {});
    ASSERT_EQ(store.ranks.size(), 1u);
    EXPECT_EQ(store.ranks[0]->events.size(), 2u);
    EXPECT_EQ(example(store, "far_apart"), core::cat("rank 0: ", first, " ends at 2024-05-01 12:00:00 UTC, ", second,
                                                     " begins at 2024-05-01 15:01:01 UTC"));
  }
}

TEST_F(LoadTest, WindowsOfOneRunAreJoinedSilently) {
  const Store store = load({kernel_at("a.json", 0), kernel_at("b.json", 600)}, {});
  EXPECT_EQ(store.ranks.at(0)->events.size(), 2u);
  EXPECT_TRUE(store.stats.issues().empty());
}

TEST_F(LoadTest, XPlaneIsRefusedWithTheWayToJson) {
  const std::string path = write("jax.xplane.pb", std::string("\n\x0d\x12\x09/host:CPU\x1a\x00", 15));
  const ms::test::Thrown refused = ms::test::thrown_by([&] { load({path}, {}); });
  EXPECT_EQ(refused.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(refused.text,
              testing::HasSubstr("jax.xplane.pb: is an XPlane profile (JAX, TensorFlow), which msprof does not read"));
}

TEST_F(LoadTest, KernelTableWithoutItsFolderGivesDeviceEvents) {
  const Store store = load({write("kernel_details.csv",
                                  "Name,Type,Accelerator Core,Start Time(us),Duration(us),Stream ID\n"
                                  "MatMul_1,MatMul,AI_CORE,1714564800000000.123,5.5,3\n"
                                  "hcom_allReduce__1,N/A,HCCL,1714564800000010,2,4\n")},
                           {});
  const RankTrace& trace = *store.ranks.at(0);
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.events.ts[0], 1'714'564'800'000'000'123);
  EXPECT_EQ(trace.events.dur[0], 5'500);
  EXPECT_EQ(trace.side(0), Side::kDevice);
  EXPECT_EQ(store.files.at(0).format, "kernel_table");
}

}  // namespace
}  // namespace ms::profile
