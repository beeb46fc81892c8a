// Summary of a list of numbers as Holistic Trace Analysis prints it (pandas' describe()).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ms::profile {

struct HtaSummary {
  int64_t count = 0;
  double mean = 0, min = 0, p25 = 0, p50 = 0, p75 = 0, max = 0;  // percentiles interpolate
  std::optional<double> std;                                     // of the sample: nullopt for one number
};

// values: at least one.
HtaSummary hta_summary(std::vector<double> values);

// Of the sample; nullopt for fewer than two values.
std::optional<double> sample_deviation(const std::vector<double>& values);

}  // namespace ms::profile
