// Kernels across ranks: grouped by name and class, quantiles by nearest rank.
#include "profile/analysis/kernel_spread.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

KernelRow row(const std::string& name, int64_t sum_ns, DeviceClass device_class = DeviceClass::kComputation) {
  return {name, device_class, 1, sum_ns, sum_ns, sum_ns};
}

TEST(KernelSpread, QuantilesAreByNearestRank) {
  std::vector<std::vector<KernelRow>> rows;
  for (const int64_t ns : {40, 10, 30, 20, 50}) rows.push_back({row("gemm", ns)});
  std::vector<RankKernels> ranks;
  for (size_t i = 0; i < rows.size(); ++i) ranks.push_back({static_cast<int>(i), &rows[i]});
  const KernelSpread spread = kernel_spread(ranks);
  ASSERT_EQ(spread.size(), 1u);
  EXPECT_EQ(spread[0].ranks, 5);
  EXPECT_EQ(spread[0].sum_ns, 150);
  EXPECT_EQ(spread[0].min_ns, 10);
  EXPECT_EQ(spread[0].p25_ns, 20);
  EXPECT_EQ(spread[0].median_ns, 30);
  EXPECT_EQ(spread[0].p75_ns, 40);
  EXPECT_EQ(spread[0].max_ns, 50);
  EXPECT_EQ(spread[0].min_rank, 1);
  EXPECT_EQ(spread[0].max_rank, 4);
}

TEST(KernelSpread, RanksWithoutTheKernelDoNotCount) {
  const std::vector<KernelRow> both = {row("gemm", 30), row("send", 5, DeviceClass::kCommunication)},
                               one = {row("gemm", 10)};
  const KernelSpread spread = kernel_spread({{7, &both}, {9, &one}});
  ASSERT_EQ(spread.size(), 2u);
  EXPECT_EQ(spread[0].name, "gemm") << "by sum";
  EXPECT_EQ(spread[0].median_ns, 10) << "of two, the smaller";
  EXPECT_EQ(spread[1].ranks, 1);
  EXPECT_EQ(spread[1].max_rank, 7);
  EXPECT_EQ(spread[1].device_class, DeviceClass::kCommunication);
}

TEST(KernelSpread, EqualRanksNameTheFirst) {
  const std::vector<KernelRow> same = {row("gemm", 10)};
  const KernelSpread spread = kernel_spread({{3, &same}, {1, &same}, {2, &same}});
  EXPECT_EQ(spread.at(0).min_rank, 1);
  EXPECT_EQ(spread.at(0).max_rank, 1);
}

TEST(KernelSpread, NothingOfNothing) { EXPECT_TRUE(kernel_spread({}).empty()); }

}  // namespace
}  // namespace ms::profile
