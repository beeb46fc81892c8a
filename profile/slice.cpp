#include "profile/slice.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/device.h"

namespace ms::profile {
namespace {

template <class T>
void keep(Column<T>& column, const std::vector<bool>& wanted) {
  Column<T> kept;
  for (size_t i = 0; i < column.size(); ++i) {
    if (wanted[i]) kept.push_back(column[i]);
  }
  column.swap(kept);
}

// within(start, end): whether to keep an event with these times.
template <class Within>
void keep_within(RankTrace& trace, const Within& within) {
  Events& events = trace.events;
  std::vector<bool> wanted(events.size());
  for (size_t i = 0; i < events.size(); ++i) wanted[i] = within(events.ts[i], events.end(i));
  const DeviceView view = view_devices(trace);
  for (const DeviceEvent& device : view.devices) {
    // The launch decides if there is one: a kernel belongs to the step that submitted it.
    if (device.launch != kNoLaunch) wanted[device.event] = wanted[device.launch];
  }
  keep(events.ts, wanted);
  keep(events.dur, wanted);
  keep(events.name, wanted);
  keep(events.category, wanted);
  keep(events.lane, wanted);
  keep(events.correlation, wanted);
  keep(events.external, wanted);
  keep(events.comm, wanted);
  keep(events.details, wanted);
  if (trace.keep_file_order) keep(events.file_order, wanted);
  std::erase_if(trace.memory, [&](const MemoryChange& m) { return !within(m.ts, m.ts); });
  std::erase_if(trace.counters, [&](const CounterSample& c) { return !within(c.ts, c.ts); });
  finish_trace(trace);
}

}  // namespace

void slice(Store& store, const SliceOptions& options) {
  bool found = options.steps.empty();
  for (const auto& trace : store.ranks) {
    std::vector<Interval> windows;
    constexpr int64_t kFar = int64_t{1} << 62;
    const auto clip = [&](int64_t start, int64_t end) {
      const Interval window{std::max(start, trace->first_ts + std::min(options.from_ns, kFar)),
                            std::min(end, options.to_ns >= kFar ? INT64_MAX : trace->first_ts + options.to_ns)};
      if (window.start < window.end) windows.push_back(window);
    };
    if (options.steps.empty()) {
      clip(INT64_MIN, INT64_MAX);
    } else {
      for (const Step& step : view_devices(*trace, options.steps).steps) {
        found = true;
        clip(step.start, step.end);
      }
    }
    keep_within(*trace, [&](int64_t start, int64_t end) {
      return std::any_of(windows.begin(), windows.end(),
                         [&](const Interval& w) { return start < w.end && std::max(end, start + 1) > w.start; });
    });
  }
  if (!found) throw core::Error(core::ErrorCode::kNotFound, "--step: no trace contains any of these steps");
}

void drop_last_steps(Store& store) {
  for (const auto& trace : store.ranks) {
    const std::vector<Step> steps = view_devices(*trace).steps;
    if (steps.size() < 2) continue;
    int64_t last = INT64_MIN;
    for (const Step& step : steps) last = std::max(last, step.start);
    keep_within(*trace, [last](int64_t start, int64_t) { return start < last; });
  }
}

}  // namespace ms::profile
