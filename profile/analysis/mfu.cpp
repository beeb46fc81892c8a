#include "profile/analysis/mfu.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "profile/analysis/input_dims.h"
#include "profile/analysis/operators.h"

namespace ms::profile {
namespace {

// factor times all the sizes; nullopt above 2^62.
std::optional<int64_t> product(int64_t factor, std::initializer_list<const int64_t*> begins,
                               std::initializer_list<size_t> counts) {
  __int128 all = factor;
  auto count = counts.begin();
  for (const int64_t* begin : begins) {
    for (size_t i = 0; i < *count; ++i) {
      all *= begin[i];
      if (all > __int128{1} << 62) return std::nullopt;
    }
    ++count;
  }
  return static_cast<int64_t>(all);
}

std::optional<int64_t> of_product(const Dims& a, const Dims& b) {
  if (a.size() < 2 || a.size() != b.size() || a.back() != b[b.size() - 2]) return std::nullopt;
  return product(2, {a.data(), &b.back()}, {a.size(), 1});
}

}  // namespace

std::optional<int64_t> flops_of_operator(std::string_view name, std::string_view dims) {
  const std::vector<Dims> in = parse_dims(dims).value_or(std::vector<Dims>());
  const auto fits = [&](size_t inputs) { return in.size() >= inputs; };
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::matmul") {
    return fits(2) ? of_product(in[0], in[1]) : std::nullopt;
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") return fits(3) ? of_product(in[1], in[2]) : std::nullopt;
  if (name == "aten::linear") {  // x [.., k], weight [n, k]
    if (!fits(2) || in[0].empty() || in[1].size() != 2 || in[0].back() != in[1][1]) return std::nullopt;
    return product(2, {in[0].data(), in[1].data()}, {in[0].size(), 1});
  }
  if (name.starts_with("aten::_scaled_dot_product") || name == "aten::scaled_dot_product_attention") {
    const bool backward = name.ends_with("_backward");
    const size_t q = backward ? 1 : 0;  // after the gradient of the output
    if (!fits(q + 2) || in[q].size() != 4 || in[q + 1].size() != 4 || in[q][3] != in[q + 1][3]) return std::nullopt;
    return product(backward ? 10 : 4, {in[q].data(), &in[q + 1][2]}, {4, 1});
  }
  return std::nullopt;
}

namespace {

// Uses the FLOPs recorded with the kernels.
void take_recorded(const RankTrace& trace, const DeviceView& view, Mfu& out) {
  std::map<NameId, FlopsRow> rows;
  for (const DeviceEvent& device : view.devices) {
    const Details& details = trace.details[trace.events.details[device.event]];
    if (device.device_class != DeviceClass::kComputation || details.flops < 0) continue;
    FlopsRow& row = rows[trace.events.name[device.event]];
    ++row.count;
    row.flops += details.flops;
    if (details.bytes >= 0) row.bytes = std::max<int64_t>(row.bytes, 0) + details.bytes;
    row.device_ns += trace.events.dur[device.event];
  }
  for (auto& [name, row] : rows) {
    row.name = trace.names[name];
    out.rows.push_back(std::move(row));
  }
}

// Estimates from shapes: an operator counts unless a descendant does (linear calls addmm); its kernels are those
// launched below it.
void estimate(const RankTrace& trace, const DeviceView& view, Mfu& out) {
  const Events& events = trace.events;
  std::unordered_map<uint32_t, int64_t> device_ns;  // computing time, by launch
  for (const DeviceEvent& device : view.devices) {
    if (device.launch == kNoLaunch || device.device_class != DeviceClass::kComputation) continue;
    device_ns[device.launch] += events.dur[device.event];
  }
  std::map<NameId, FlopsRow> rows;
  struct Open {
    uint32_t event;
    int64_t flops, device_ns = 0;
    bool counted_below = false;
  };
  std::vector<Open> open;
  const auto close = [&] {
    const Open closed = open.back();
    open.pop_back();
    const bool counts = closed.flops >= 0 && !closed.counted_below && closed.device_ns > 0;
    if (counts) {
      FlopsRow& row = rows[events.name[closed.event]];
      ++row.count;
      row.flops += closed.flops;
      row.device_ns += closed.device_ns;
    }
    if (open.empty()) return;
    open.back().counted_below |= counts || closed.counted_below;
    if (!counts) open.back().device_ns += closed.device_ns;
  };
  for (const std::vector<uint32_t>& lane : nested_events(trace, Nesting::kOperators)) {
    for (const uint32_t i : lane) {
      while (!open.empty() && events.end(open.back().event) <= events.ts[i]) close();
      if (trace.side(i) == Side::kLaunch) {
        const auto launched = device_ns.find(i);
        if (launched != device_ns.end() && !open.empty()) open.back().device_ns += launched->second;
        continue;
      }
      const Details& details = trace.details[events.details[i]];
      if (details.dims != 0 && !parse_dims(trace.names[details.dims])) ++out.unread_shapes;
      const auto flops =
          details.dims == 0 ? std::nullopt : flops_of_operator(trace.names[events.name[i]], trace.names[details.dims]);
      open.push_back({i, flops.value_or(-1)});
    }
    while (!open.empty()) close();
  }
  for (auto& [name, row] : rows) {
    row.name = trace.names[name];
    out.rows.push_back(std::move(row));
  }
}

}  // namespace

double Mfu::flops_per_second() const {
  const int64_t ns = step_ns * std::max<int64_t>(steps, 1);
  return ns > 0 ? static_cast<double>(flops) / static_cast<double>(ns) * 1e9 : 0;
}

std::optional<Mfu> mfu(const RankTrace& trace, const DeviceView& view) {
  if (view.devices.empty()) return std::nullopt;
  Mfu out;
  out.rank = trace.rank;
  out.steps = static_cast<int64_t>(view.steps.size());
  int64_t all = 0, first = INT64_MAX, last = INT64_MIN;
  for (const Step& step : view.steps) all += step.end - step.start;
  for (const DeviceEvent& device : view.devices) {
    first = std::min(first, trace.events.ts[device.event]);
    last = std::max(last, trace.events.end(device.event));
    if (device.device_class == DeviceClass::kComputation) out.computing_ns += trace.events.dur[device.event];
  }
  out.step_ns = out.steps > 0 ? all / out.steps : last - first;
  take_recorded(trace, view, out);
  out.recorded = !out.rows.empty();
  if (!out.recorded) estimate(trace, view, out);
  for (const FlopsRow& row : out.rows) {
    out.flops += row.flops;
    out.covered_ns += row.device_ns;
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const FlopsRow& a, const FlopsRow& b) { return a.flops > b.flops; });
  return out;
}

}  // namespace ms::profile
