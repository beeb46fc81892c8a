#include "train/loop/operator_times.h"

#include <algorithm>

#include "core/error.h"

namespace ms::train {

double median(std::vector<double> values) {
  MS_CHECK(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

void OperatorTimes::on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t flops,
                                int64_t bytes, int64_t dur_ns) {
  MS_CHECK(steps_ > 0, "operator outside a step");
  const auto [found, is_new] = index_.try_emplace({std::string(name), inputs}, sums_.size());
  if (is_new) sums_.push_back({.all = {.name = std::string(name), .inputs = inputs}});
  Sums& sums = sums_[found->second];
  sums.ns_of_step.resize(steps_);
  sums.ns_of_step.back() += dur_ns;
  ++sums.all.calls;
  sums.all.flops += std::max<int64_t>(flops, 0);
  sums.all.bytes += bytes;
}

std::vector<OperatorRow> OperatorTimes::rows() const {
  const auto steps = static_cast<int64_t>(steps_);
  std::vector<OperatorRow> rows;
  for (const Sums& sums : sums_) {
    OperatorRow row = sums.all;
    MS_CHECK(sums.ns_of_step.size() == steps_ && row.calls % steps == 0, row.name, ": ", row.calls, " calls in ", steps,
             " steps");
    row.calls /= steps, row.flops /= steps, row.bytes /= steps;
    row.seconds = 1e-9 * median(std::vector<double>(sums.ns_of_step.begin(), sums.ns_of_step.end()));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ms::train
