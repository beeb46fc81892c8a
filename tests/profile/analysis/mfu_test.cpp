// FLOPs from shapes and from the trace, and the share of device time that they cover.
#include "profile/analysis/mfu.h"

#include <gtest/gtest.h>

#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

TEST(FlopsOfAnOperator, ByItsShapes) {
  const struct {
    const char *name, *dims;
    int64_t flops;  // -1: nullopt
  } cases[] = {
      {"aten::mm", "[[2, 3], [3, 5]]", 2 * 2 * 3 * 5},
      {"aten::bmm", "[[7, 2, 3], [7, 3, 5]]", 7 * 2 * 2 * 3 * 5},
      {"aten::addmm", "[[5], [2, 3], [3, 5], [], []]", 2 * 2 * 3 * 5},
      {"aten::baddbmm", "[[7, 2, 5], [7, 2, 3], [7, 3, 5]]", 7 * 2 * 2 * 3 * 5},
      {"aten::linear", "[[4, 2, 3], [5, 3], [5]]", 2 * 4 * 2 * 3 * 5},
      {"aten::scaled_dot_product_attention", "[[2, 8, 16, 4], [2, 8, 32, 4], [2, 8, 32, 4]]", 4 * 2 * 8 * 16 * 32 * 4},
      {"aten::_scaled_dot_product_flash_attention_backward",
       "[[2, 8, 16, 4], [2, 8, 16, 4], [2, 8, 32, 4], [2, 8, 32, 4]]", 10 * 2 * 8 * 16 * 32 * 4},
      {"aten::mm", "[[0, 3], [3, 5]]", 0},
      {"aten::mm", "[[2, 3], [4, 5]]", -1},
      {"aten::mm", "[[2, 3]]", -1},
      {"aten::mm", "", -1},
      {"aten::mm", "[[2, x], [3, 5]]", -1},
      {"aten::mm", "[[[2, 3]], [3, 5]]", -1},
      {"aten::mm", "[[2000000000, 2000000000], [2000000000, 2000000000]]", -1},
      {"aten::mm", "[[99999999999999999999, 3], [3, 5]]", -1},
      {"aten::add", "[[2, 3], [2, 3]]", -1},
      {"aten::conv2d", "[[1, 3, 8, 8], [4, 3, 3, 3]]", -1},
  };
  for (const auto& [name, dims, flops] : cases) {
    EXPECT_EQ(flops_of_operator(name, dims).value_or(-1), flops) << name << " " << dims;
  }
}

class MfuTest : public testing::Test {
 protected:
  Mfu of(test::TraceMaker& maker) {
    store_ = load({maker.finish()}, {});
    return mfu(*store_.ranks[0], view_devices(*store_.ranks[0])).value();
  }
  test::TemporaryFolder folder_;
  Store store_;
};

TEST(FlopsOfAnOperator, ShapesOverSeveralLines) {
  EXPECT_EQ(flops_of_operator("aten::mm", "[\n  [\n    2,\n    3\n  ],\r\n\t[3, 4]\n]"), 48);
}

TEST_F(MfuTest, WhatTheKernelsCarry) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  maker.host("ProfilerStep#2", 1000, 2000);
  maker.kernel("gemm", 100, 400, 0, 6000, 300);
  maker.kernel("gemm", 1100, 1400, 0, 6000, 300);
  maker.kernel("norm", 500, 600, 0, 50, 800);
  maker.kernel("other", 700, 800);
  const Mfu m = of(maker);
  EXPECT_TRUE(m.recorded);
  EXPECT_EQ(m.steps, 2);
  EXPECT_EQ(m.step_ns, 1000);
  EXPECT_EQ(m.flops, 12050);
  EXPECT_EQ(m.computing_ns, 800);
  EXPECT_EQ(m.covered_ns, 700);
  EXPECT_DOUBLE_EQ(m.flops_per_second(), 12050 / 2000e-9);
  ASSERT_EQ(m.rows.size(), 2u);
  EXPECT_EQ(m.rows[0].name, "gemm");
  EXPECT_EQ(m.rows[0].bytes, 600);
}

TEST_F(MfuTest, AnOperatorCountsOnceHoweverDeepItIsCalled) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.op("aten::linear", 0, 100, "[[2, 3], [5, 3], [5]]");
  maker.op("aten::addmm", 10, 90, "[[5], [2, 3], [3, 5]]");
  maker.launch(1, 20, 30);
  maker.kernel("sgemm", 50, 250, 1);
  maker.op("aten::relu", 200, 260, "[[2, 5]]");
  maker.launch(2, 210, 220);
  maker.kernel("relu", 260, 300, 2);
  maker.op("aten::mm", 400, 500, "[[2, 3], [3, 5]]");  // launched nothing: it ran on the host, or was not recorded
  const Mfu m = of(maker);
  EXPECT_FALSE(m.recorded);
  EXPECT_EQ(m.flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(m.covered_ns, 200);
  EXPECT_EQ(m.computing_ns, 240);
  ASSERT_EQ(m.rows.size(), 1u);
  EXPECT_EQ(m.rows[0].name, "aten::addmm");
  EXPECT_EQ(m.steps, 0);
  EXPECT_EQ(m.step_ns, 250);  // of device time
}

}  // namespace
}  // namespace ms::profile
