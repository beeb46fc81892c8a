// Under the words and in the units of Holistic Trace Analysis.
#include "profile/report/hta_tables.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

TEST(HtaTables, TimesAndTheirSharesOfKernelTime) {
  const HtaBreakdown b{
      .idle = 1000, .compute = 3000, .non_compute = 4000, .kernel = 8000, .overlap = 1000, .communication = 4000};
  const std::vector<DataTable> tables = hta_tables({{5, b}});
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].csv(),
            "rank,idle_time_us,compute_time_us,non_compute_time_us,kernel_time_us,idle_time_pct,compute_time_pct,"
            "non_compute_time_pct\r\n"
            "5,1.000,3.000,4.000,8.000,12.5000,37.5000,50.0000\r\n");
  EXPECT_EQ(tables[1].csv(), "rank,comp_comm_overlap_pct\r\n5,25.0000\r\n");
}

}  // namespace
}  // namespace ms::profile
