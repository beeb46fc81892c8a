#include "profile/analysis/kernel_spread.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace ms::profile {
namespace {

// values: ascending, not empty.
int64_t nearest_rank(const std::vector<std::pair<int64_t, int>>& values, int64_t percent) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t rank = std::max<int64_t>(1, (n * percent + 99) / 100);
  return values[static_cast<size_t>(rank - 1)].first;
}

}  // namespace

KernelSpread kernel_spread(const std::vector<RankKernels>& ranks) {
  std::map<std::pair<std::string_view, DeviceClass>, std::vector<std::pair<int64_t, int>>> by_kernel;
  for (const RankKernels& rank : ranks) {
    for (const KernelRow& row : *rank.rows) by_kernel[{row.name, row.device_class}].emplace_back(row.sum_ns, rank.rank);
  }
  KernelSpread out;
  for (auto& [kernel, values] : by_kernel) {
    std::sort(values.begin(), values.end());
    KernelSpreadRow row{std::string(kernel.first), kernel.second, static_cast<int64_t>(values.size())};
    for (const auto& [ns, rank] : values) row.sum_ns += ns;
    row.min_ns = values.front().first;
    row.min_rank = values.front().second;
    row.p25_ns = nearest_rank(values, 25);
    row.median_ns = nearest_rank(values, 50);
    row.p75_ns = nearest_rank(values, 75);
    row.max_ns = values.back().first;
    row.max_rank = std::lower_bound(values.begin(), values.end(), std::pair(row.max_ns, INT32_MIN))->second;
    out.push_back(std::move(row));
  }
  std::sort(out.begin(), out.end(), [](const KernelSpreadRow& a, const KernelSpreadRow& b) {
    return std::tuple(-a.sum_ns, std::string_view(a.name), a.device_class) <
           std::tuple(-b.sum_ns, std::string_view(b.name), b.device_class);
  });
  return out;
}

}  // namespace ms::profile
