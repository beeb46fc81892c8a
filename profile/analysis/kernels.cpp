#include "profile/analysis/kernels.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace ms::profile {

std::vector<KernelRow> kernel_rows(const RankTrace& trace, const DeviceView& view) {
  std::unordered_map<uint64_t, size_t> index;  // (name, class) -> row
  std::vector<KernelRow> rows;
  std::vector<long double> squares;
  for (const DeviceEvent& device : view.devices) {
    const NameId name = trace.events.name[device.event];
    const auto [entry, added] =
        index.try_emplace(static_cast<uint64_t>(name) << 8 | static_cast<uint64_t>(device.device_class), rows.size());
    const int64_t dur = trace.events.dur[device.event];
    if (added) {
      KernelRow row;
      row.name = trace.names[name];
      row.device_class = device.device_class;
      row.min_ns = row.max_ns = dur;
      rows.push_back(row);
      squares.push_back(0);
    }
    KernelRow& row = rows[entry->second];
    ++row.count;
    row.sum_ns += dur;
    row.min_ns = std::min(row.min_ns, dur);
    row.max_ns = std::max(row.max_ns, dur);
    squares[entry->second] += static_cast<long double>(dur) * static_cast<long double>(dur);
    const Details& details = trace.details[trace.events.details[device.event]];
    if (details.flops >= 0) {
      row.flops = std::max<int64_t>(row.flops, 0) + details.flops;
      row.flops_ns += dur;
    }
    if (details.bytes >= 0) {
      row.bytes = std::max<int64_t>(row.bytes, 0) + details.bytes;
      row.bytes_ns += dur;
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    KernelRow& row = rows[i];
    const auto n = static_cast<long double>(row.count), sum = static_cast<long double>(row.sum_ns);
    row.mean_ns = static_cast<double>(sum / n);
    // 64 bits of mantissa keep the difference of the squares exact enough for durations up to hours.
    if (row.count > 1) {
      row.std_ns = static_cast<double>(std::sqrt(std::max(0.0L, (squares[i] - sum * sum / n) / (n - 1))));
    }
  }
  std::sort(rows.begin(), rows.end(), [](const KernelRow& a, const KernelRow& b) {
    if (a.sum_ns != b.sum_ns) return a.sum_ns > b.sum_ns;
    if (a.name != b.name) return a.name < b.name;
    return a.device_class < b.device_class;
  });
  return rows;
}

}  // namespace ms::profile
