#include "profile/analysis/hta_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ms::profile {

std::optional<double> sample_deviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return std::nullopt;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1));
}

HtaSummary hta_summary(std::vector<double> values) {
  HtaSummary out;
  out.count = static_cast<int64_t>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(out.count);
  out.std = sample_deviation(values);
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    const double at = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
  };
  out.min = values.front();
  out.max = values.back();
  out.p25 = quantile(0.25);
  out.p50 = quantile(0.5);
  out.p75 = quantile(0.75);
  return out;
}

}  // namespace ms::profile
