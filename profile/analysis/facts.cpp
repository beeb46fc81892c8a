#include "profile/analysis/facts.h"

#include <unordered_set>

#include "core/dtype.h"

namespace ms::profile {

Facts facts(const RankTrace& trace, const DeviceView& view) {
  Facts out;
  std::vector<int64_t> by_category(trace.categories.size());
  std::vector<bool> named(trace.names.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    ++by_category[trace.events.category[i]];
    if (!named[trace.events.name[i]]) {
      named[trace.events.name[i]] = true;
      ++out.distinct_slice_names;
    }
  }
  const auto slices = static_cast<int64_t>(trace.events.size());
  const auto instants = static_cast<int64_t>(trace.memory.size()),
             samples = static_cast<int64_t>(trace.counters.size());
  out.events = slices + instants + samples;
  for (size_t c = 0; c < by_category.size(); ++c) {
    if (by_category[c] > 0) out.by_category[trace.names[trace.categories[c].name]] += by_category[c];
  }
  if (slices > 0) out.by_phase['X'] = slices;
  if (instants > 0) {
    out.by_phase['i'] = instants;
    out.by_category["cpu_instant_event"] += instants;
  }
  if (samples > 0) out.by_phase['C'] = samples;
  for (const DeviceEvent& device : view.devices) {
    ++out.device_events;
    if (device.launch != kNoLaunch) ++out.device_events_with_launch;
    ++out.device_events_by_class[static_cast<size_t>(device.device_class)];
  }
  for (const Step& step : view.steps) out.steps.push_back(step.number);
  out.first_ts = trace.first_ts;
  out.last_end = trace.last_end;
  for (size_t i = 1; i < trace.comms.size(); ++i) {
    const auto dtype = core::parse_dtype(trace.names[trace.comms[i].dtype]);
    if (dtype) out.comm_bytes += trace.comms[i].in_elements * core::size_of(*dtype);
  }
  return out;
}

}  // namespace ms::profile
