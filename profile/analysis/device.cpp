#include "profile/analysis/device.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_map>

#include "profile/analysis/host_devices.h"
#include "profile/analysis/step_names.h"

namespace ms::profile {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Launches by correlation: an array for dense ids, a hash for others. Of several launches with one id the first counts.
class LaunchIndex {
 public:
  explicit LaunchIndex(const RankTrace& trace) {
    uint32_t least = UINT32_MAX, largest = 0;
    size_t launches = 0;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      const uint32_t id = trace.events.correlation[i];
      if (id == 0 || trace.side(i) != Side::kLaunch) continue;
      least = std::min(least, id);
      largest = std::max(largest, id);
      ++launches;
    }
    if (launches == 0) return;
    first_ = least;
    const bool dense = size_t{largest - least} < 8 * launches + 1024;
    if (dense) dense_.assign(size_t{largest - least} + 1, kNoLaunch);
    for (size_t i = trace.events.size(); i-- > 0;) {
      const uint32_t id = trace.events.correlation[i];
      if (id == 0 || trace.side(i) != Side::kLaunch) continue;
      if (dense) {
        dense_[id - least] = static_cast<uint32_t>(i);
      } else {
        sparse_[id] = static_cast<uint32_t>(i);
      }
    }
  }
  uint32_t find(uint32_t id) const {
    if (id == 0) return kNoLaunch;
    if (!dense_.empty()) return id >= first_ && id - first_ < dense_.size() ? dense_[id - first_] : kNoLaunch;
    const auto found = sparse_.find(id);
    return found == sparse_.end() ? kNoLaunch : found->second;
  }

 private:
  uint32_t first_ = 0;
  std::vector<uint32_t> dense_;
  std::unordered_map<uint32_t, uint32_t> sparse_;
};

// The step that contains an instant; if steps overlap, the one that started last. Steps of one thread do not nest, so a
// short search backwards is enough.
int32_t step_at(const std::vector<Step>& steps, int64_t ts) {
  auto next = std::upper_bound(steps.begin(), steps.end(), ts, [](int64_t t, const Step& s) { return t < s.start; });
  for (int back = 0; back < 4 && next != steps.begin(); ++back) {
    --next;
    if (ts < next->end) return static_cast<int32_t>(next - steps.begin());
  }
  return kNoStep;
}

}  // namespace

std::vector<Step> find_steps(const RankTrace& trace) {
  const std::vector<bool> names = step_names(trace);
  std::vector<Step> steps;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const NameId name = trace.events.name[i];
    if (!names[name]) continue;
    const Side side = trace.side(i);
    if (side != Side::kAnnotation && side != Side::kOperator) continue;  // old Kineto recorded steps as operators
    const int64_t nth = static_cast<int64_t>(steps.size());
    steps.push_back({step_number(trace, name).value_or(nth), trace.events.ts[i], trace.events.end(i)});
  }
  return steps;
}

DeviceClass class_of_name(std::string_view name) {
  const std::string text = lower(name);
  const auto starts = [&](std::string_view word) { return text.starts_with(word); };
  const auto holds = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (starts("nccl") || starts("rccl") || starts("hccl") || starts("hcom_") || holds("ncclkernel") ||
      holds("nccldevkernel") || holds("cross_device_reduce") || holds("one_shot_all_reduce") ||
      holds("two_shot_all_reduce") || holds("oneshotallreduce") || holds("twoshotallreduce") ||
      // PyTorch's symmetric memory, NVSHMEM, DeepEP, fused all-reduces of TensorRT-LLM and FlashInfer, QuickReduce
      holds("multimem_") || holds("nvshmem") || holds("deep_ep::") || holds("allreduce_fusion") ||
      holds("quickreduce::") || holds("all_reduce_kernel") ||
      // XLA operations
      starts("all-reduce") || starts("all-gather") || starts("reduce-scatter") || starts("all-to-all") ||
      starts("collective-permute") || starts("collective-broadcast")) {
    return DeviceClass::kCommunication;
  }
  const std::string_view bare = starts("hip") ? std::string_view(text).substr(3) : std::string_view(text);
  if (bare.starts_with("memcpy") || bare.starts_with("memset") || starts("dma") || starts("copybuffer") ||
      starts("fillbuffer")) {
    return DeviceClass::kMemory;
  }
  return DeviceClass::kComputation;
}

DeviceClass DeviceClasses::operator()(size_t event) {
  if (trace_.side(event) == Side::kDeviceCopy) return DeviceClass::kMemory;
  const bool calls = trace_.events.comm[event] != 0;
  if (calls && trace_.class_rules == nullptr) return DeviceClass::kCommunication;
  const auto [entry, added] = by_name_.try_emplace(trace_.events.name[event]);
  OfName& of_name = entry->second;
  if (added) {
    const std::string& name = trace_.names[trace_.events.name[event]];
    if (trace_.class_rules != nullptr) of_name.by_rule = trace_.class_rules->find(name);
    of_name.ours = class_of_name(name);
  }
  if (of_name.by_rule) return *of_name.by_rule;
  return calls ? DeviceClass::kCommunication : of_name.ours;
}

DeviceView view_devices(const RankTrace& trace, std::span<const int64_t> step_numbers) {
  DeviceView view;
  const auto wanted = [&](int64_t number) {
    return step_numbers.empty() || std::find(step_numbers.begin(), step_numbers.end(), number) != step_numbers.end();
  };
  view.steps = find_steps(trace);
  std::erase_if(view.steps, [&](const Step& step) { return !wanted(step.number); });

  const LaunchIndex launches(trace);
  DeviceClasses classes(trace);
  const Events& events = trace.events;
  view.on_host = true;
  for (size_t i = 0; i < events.size(); ++i) {
    const Side side = trace.side(i);
    if (!is_device_work(side)) continue;
    view.on_host = false;
    DeviceEvent device;
    device.event = static_cast<uint32_t>(i);
    device.launch = launches.find(events.correlation[i]);
    device.step = step_at(view.steps, device.launch == kNoLaunch ? events.ts[i] : events.ts[device.launch]);
    if (device.step == kNoStep && !step_numbers.empty()) continue;
    device.device_class = classes(i);
    view.devices.push_back(device);
  }
  if (!view.on_host) return view;
  for (DeviceEvent device : host_devices(trace)) {
    device.step = step_at(view.steps, events.ts[device.event]);
    if (device.step != kNoStep || step_numbers.empty()) view.devices.push_back(device);
  }
  return view;
}

IntervalSet time_of(const RankTrace& trace, const DeviceView& view, DeviceClass device_class,
                    std::optional<int32_t> step) {
  std::vector<Interval> intervals;
  for (const DeviceEvent& device : view.devices) {
    if (device.device_class != device_class || (step && device.step != *step)) continue;
    intervals.push_back({trace.events.ts[device.event], trace.events.end(device.event)});
  }
  return IntervalSet(std::move(intervals));
}

}  // namespace ms::profile
