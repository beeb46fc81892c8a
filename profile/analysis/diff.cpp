#include "profile/analysis/diff.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "profile/analysis/collectives.h"

namespace ms::profile {
namespace {

struct Amount {
  int64_t count[2] = {0, 0}, ns[2] = {0, 0};
};
using Amounts = std::map<std::string, Amount>;

DiffRow row_of(const std::string& name, const Amount& amount) {
  return {name, amount.count[0], amount.count[1], amount.ns[0], amount.ns[1]};
}

DiffSide side_of(const Amounts& amounts) {
  DiffSide out;
  int64_t all = 0;
  for (const auto& [name, amount] : amounts) {
    const DiffRow row = row_of(name, amount);
    int64_t& kind = row.base_count == 0               ? out.added
                    : row.test_count == 0             ? out.deleted
                    : row.test_count > row.base_count ? out.increased
                    : row.test_count < row.base_count ? out.decreased
                                                      : out.unchanged;
    ++kind;
    out.base_ns += row.base_ns;
    out.test_ns += row.test_ns;
    all += std::abs(row.delta_ns());
    out.rows.push_back(row);
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const DiffRow& a, const DiffRow& b) { return std::abs(a.delta_ns()) > std::abs(b.delta_ns()); });
  int64_t covered = 0;
  while (out.explaining < out.rows.size() && covered * 5 < all * 4) {
    covered += std::abs(out.rows[out.explaining++].delta_ns());
  }
  return out;
}

// The 97.5 % quantile of Student's t, by Hill's expansion of the normal quantile: exact to three digits from 2 degrees
// on.
double t_quantile(double degrees) {
  constexpr double z = 1.959963984540054;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * degrees * degrees * degrees);
}

StepDiff compare_steps(const std::vector<double> (&ns)[2]) {
  StepDiff out;
  double mean[2] = {0, 0}, variance[2] = {0, 0};
  for (const int s : {0, 1}) {
    const auto n = static_cast<double>(ns[s].size());
    for (const double v : ns[s]) mean[s] += v / n;
    for (const double v : ns[s]) variance[s] += n > 1 ? (v - mean[s]) * (v - mean[s]) / (n - 1) / n : 0;
  }
  out.base_steps = static_cast<int64_t>(ns[0].size());
  out.test_steps = static_cast<int64_t>(ns[1].size());
  out.base_mean_ns = mean[0];
  out.test_mean_ns = mean[1];
  if (ns[0].size() < 3 || ns[1].size() < 3) return out;
  const double error = variance[0] + variance[1], delta = mean[1] - mean[0];
  const double degrees = error == 0 ? 1e9
                                    : error * error /
                                          (variance[0] * variance[0] / static_cast<double>(ns[0].size() - 1) +
                                           variance[1] * variance[1] / static_cast<double>(ns[1].size() - 1));
  const double reach = t_quantile(degrees) * std::sqrt(error);
  out.low_ns = delta - reach;
  out.high_ns = delta + reach;
  return out;
}

}  // namespace

std::string short_name(std::string_view name) {
  std::string out;
  int angle = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<' && !out.ends_with("operator")) ++angle;
    if (angle == 0) {
      if (c == '(' && !name.substr(i).starts_with("(anonymous namespace)")) break;
      out += c;
    }
    if (c == '>' && angle > 0) --angle;
  }
  if (out.starts_with("void ")) out.erase(0, 5);
  while (out.ends_with(' ')) out.pop_back();
  return out.empty() ? std::string(name) : out;
}

Diff diff_runs(const Store& base, const Store& test, const std::vector<int64_t>& steps, bool short_names) {
  Amounts device, host, communication;
  std::vector<double> step_ns[2];
  for (const int s : {0, 1}) {
    for (const auto& trace : (s == 0 ? base : test).ranks) {
      const DeviceView view = view_devices(*trace, steps);
      const Events& events = trace->events;
      std::vector<std::string> names(trace->names.size());
      const auto name_of = [&](size_t i) -> const std::string& {
        std::string& name = names[events.name[i]];
        const std::string& full = trace->names[events.name[i]];
        if (name.empty()) name = short_names ? short_name(full) : full;
        return name;
      };
      const auto add = [&](Amount& amount, size_t i) {
        ++amount.count[s];
        amount.ns[s] += events.dur[i];
      };
      for (const DeviceEvent& event : view.devices) {
        add(device[name_of(event.event)], event.event);
        const uint32_t row = events.comm[event.event];
        if (row == 0) continue;
        const CommArgs& comm = trace->comms[row];
        const int64_t size = element_bytes(trace->names[comm.dtype]);
        const std::string bytes = size > 0 && comm.in_elements >= 0 && comm.in_elements < (int64_t{1} << 50)
                                      ? core::cat(", ", comm.in_elements * size, " B")
                                      : std::string();
        add(communication[comm_type(trace->names[comm.op]) + bytes], event.event);
      }
      const auto inside = [&](int64_t ts) {
        return steps.empty() || std::any_of(view.steps.begin(), view.steps.end(),
                                            [&](const Step& step) { return ts >= step.start && ts < step.end; });
      };
      for (size_t i = 0; i < events.size(); ++i) {
        if (trace->side(i) == Side::kOperator && inside(events.ts[i])) add(host[name_of(i)], i);
      }
      for (const Step& step : view.steps) step_ns[s].push_back(static_cast<double>(step.end - step.start));
    }
  }
  Diff out{side_of(device), side_of(host), compare_steps(step_ns), {}};
  for (const auto& [name, amount] : communication) {
    if (amount.count[0] != amount.count[1]) out.communication.push_back(row_of(name, amount));
  }
  return out;
}

}  // namespace ms::profile
