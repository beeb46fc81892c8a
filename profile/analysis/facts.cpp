#include "profile/analysis/facts.h"

#include <optional>
#include <vector>

#include "core/dtype.h"

namespace ms::profile {

Facts facts(const RankTrace& trace, const DeviceView& view) {
  Facts out;
  std::vector<bool> named(trace.names.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (!named[trace.events.name[i]]) {
      named[trace.events.name[i]] = true;
      ++out.distinct_slice_names;
    }
  }
  for (size_t phase = 0; phase < trace.by_phase.size(); ++phase) {
    if (trace.by_phase[phase] > 0) out.by_phase[static_cast<char>(phase)] = trace.by_phase[phase];
    out.events += trace.by_phase[phase];
  }
  for (const Category& category : trace.categories) {
    if (category.events > 0) out.by_category[trace.names[category.name]] += category.events;
  }
  for (const DeviceEvent& device : view.devices) {
    if (view.on_host) break;
    ++out.device_events;
    if (device.launch != kNoLaunch) ++out.device_events_with_launch;
    ++out.device_events_by_class[static_cast<size_t>(device.device_class)];
  }
  for (const Step& step : view.steps) out.steps.push_back(step.number);
  out.first_ts = trace.first_ts;
  out.last_end = trace.last_end;
  for (const DeviceEvent& device : view.devices) {
    const uint32_t row = trace.events.comm[device.event];
    const auto dtype = row == 0 ? std::nullopt : core::parse_dtype(trace.names[trace.comms[row].dtype]);
    if (dtype) out.comm_bytes += trace.comms[row].in_elements * core::size_of(*dtype);
  }
  return out;
}

}  // namespace ms::profile
