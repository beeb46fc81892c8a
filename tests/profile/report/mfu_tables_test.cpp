// FLOP tables: rates, shares of the peak where it is known, and nothing where it is not.
#include "profile/report/mfu_tables.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ms::profile {
namespace {

Mfu measured() {
  Mfu mfu;
  mfu.rank = 3;
  mfu.recorded = true;
  mfu.steps = 2;
  mfu.step_ns = 1'000'000;
  mfu.flops = 4'000'000'000;  // 2 GFLOP a step of 1 ms: 2 TFLOP/s
  mfu.computing_ns = 2'000;
  mfu.covered_ns = 1'000;
  mfu.rows = {{"gemm", 4, 3'000'000'000, 1'500'000'000, 1'000'000}, {"norm", 2, 1'000'000'000, -1, 500'000}};
  return mfu;
}

TEST(MfuTables, RatesAndSharesOfThePeak) {
  const std::vector<DataTable> tables = mfu_tables({measured()}, {4, 1e9}, 0);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].csv(),
            "rank,flops_from,steps,step_us,gflop_per_step,tflop_per_s,covered_pct,hfu_pct,mfu_pct\r\n"
            "3,trace,2,1000.000,2.000000,2.000000,50.0000,50.000000,25.000000\r\n");
  EXPECT_EQ(tables[1].csv(),
            "rank,name,calls,device_us,gflop,gflop_per_s,gb_per_s,flop_per_byte,of_peak_pct\r\n"
            "3,gemm,4,1000.000,3.000000,3000.000000,1500.000000,2.000000,75.000000\r\n"
            "3,norm,2,500.000,1.000000,2000.000000,,,50.000000\r\n");
}

TEST(MfuTables, WithoutAPeakNoShareIsTold) {
  const std::vector<DataTable> tables = mfu_tables({measured()}, {}, 1);
  EXPECT_TRUE(tables[0].csv().ends_with("50.0000,,\r\n")) << tables[0].csv();
  EXPECT_EQ(tables[1].size(), 1u) << "the top one";
}

TEST(MfuTables, WhatIsNotKnownIsLeftEmpty) {
  Mfu unknown;
  unknown.computing_ns = 5;
  const std::vector<DataTable> tables = mfu_tables({unknown}, {4, 0}, 0);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_TRUE(tables[0].csv().ends_with("0,shapes,0,0.000,,,0.0000,,\r\n")) << tables[0].csv();
  EXPECT_TRUE(mfu_tables({}, {}, 0).empty());
}

}  // namespace
}  // namespace ms::profile
