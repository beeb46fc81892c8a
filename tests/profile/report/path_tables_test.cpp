// Critical paths as tables: what bounds them and what carries them, on one rank and across ranks.
#include "profile/report/path_tables.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

TEST(PathTables, OfOneRank) {
  RankTrace trace;
  trace.rank = 5;
  const NameId gemm = trace.names.intern("gemm"), norm = trace.names.intern("norm");
  for (const auto& [name, dur] : {std::pair(gemm, 400), std::pair(norm, 300), std::pair(gemm, 500)}) {
    trace.events.ts.push_back(0);
    trace.events.dur.push_back(dur);
    trace.events.name.push_back(name);
  }
  CriticalPath path;
  path.window_end = 2'000'000;
  path.length = 1'000;
  path.bound_ns[static_cast<size_t>(PathBound::kComputing)] = 750;
  path.bound_ns[static_cast<size_t>(PathBound::kLaunch)] = 250;
  path.events = {{0, 300}, {1, 200}, {2, 500}};
  const std::vector<DataTable> tables = path_tables(trace, path, 1);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_NE(tables[0].title().find("rank 5"), std::string::npos);
  EXPECT_NE(tables[0].title().find("2 ms of wall time"), std::string::npos) << tables[0].title();
  EXPECT_EQ(tables[0].csv(),
            "bound_by,on_path_us,of_path_pct\r\ngpu_compute_bound,0.750,75.0000\r\ngpu_kernel_launch_overhead,0.250,25."
            "0000\r\n");
  EXPECT_EQ(tables[1].csv(), "name,events,duration_us,on_path_us,of_path_pct\r\ngemm,2,0.900,0.800,80.0000\r\n");
}

TEST(PathTables, AcrossRanks) {
  JobPath path;
  path.runtime_ns = 10'000;
  path.shares = {{"gemm", Doing::kComputing, 6'000}, {"data", Doing::kLoadingData, 4'000}};
  path.by_rank = {{0, 4'000}, {7, 6'000}};
  path.what_if = {{"gemm 10 % faster", 9'500, 0.05}};
  const std::vector<DataTable> tables = path_tables(path, 1);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].csv(), "name,doing,on_path_us,of_path_pct\r\ngemm,computing,6.000,60.0000\r\n");
  EXPECT_EQ(tables[1].csv(), "rank,on_path_us,of_path_pct\r\n0,4.000,40.0000\r\n7,6.000,60.0000\r\n");
  EXPECT_EQ(tables[2].csv(), "change,runtime_us,faster_pct\r\ngemm 10 % faster,9.500,5.0000\r\n");
  EXPECT_TRUE(path_tables(JobPath{}, 0).empty());
}

}  // namespace
}  // namespace ms::profile
