#include "profile/analysis/hta_streams.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ms::profile {
namespace {

constexpr int64_t kMicrosecond = 1000;

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_kernel(const HtaFrame& frame, uint32_t event) {
  static constexpr std::array<std::string_view, 7> kCategories = {"kernel",     "Kernel", "gpu_memset",     "Memset",
                                                                  "gpu_memcpy", "Memcpy", "mtia_ccp_events"};
  return frame.on_stream(event) && is_one_of(frame.category(event), kCategories);
}

std::string kind_of_copy(std::string_view name) {
  constexpr size_t kPrefix = std::string_view("Memcpy DtoH").size();
  if (name.starts_with("Memset")) return "Memset";
  return name.starts_with("Memcpy") ? std::string(name.substr(0, kPrefix)) : "Memcpy Unknown";
}

template <class Change>
void sort_by_time(std::vector<Change>& changes) {
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.ts < b.ts; });
}

}  // namespace

bool hta_queues(std::string_view name) {
  static constexpr std::array<std::string_view, 12> kNames = {"cudaLaunchKernel",
                                                              "cudaLaunchKernelExC",
                                                              "cuLaunchKernel",
                                                              "cuLaunchKernelEx",
                                                              "cudaMemcpyAsync",
                                                              "cudaMemsetAsync",
                                                              "runFunction - job_prep_and_submit_for_execution",
                                                              "hipLaunchKernel",
                                                              "hipExtModuleLaunchKernel",
                                                              "hipMemcpyAsync",
                                                              "hipMemsetAsync",
                                                              "hipMemcpyWithStream"};
  return is_one_of(name, kNames);
}

const char* hta_idle_name(IdleKind kind) {
  constexpr std::array<const char*, kNumIdleKinds> kNames = {"host_wait", "kernel_wait", "other"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t HtaStreamIdle::total() const {
  int64_t sum = 0;
  for (const auto& part : ns) sum += part.value_or(0);
  return sum;
}

std::vector<HtaStreamIdle> hta_idle(const HtaFrame& frame, int64_t consecutive_delay) {
  const Events& events = frame.trace->events;
  std::vector<HtaStreamIdle> out;
  std::map<int64_t, size_t> index;
  for (const uint32_t event : frame.rows) {
    if (!is_kernel(frame, event)) continue;
    if (index.try_emplace(frame.stream(event), out.size()).second) out.push_back({frame.stream(event), {}});
  }
  std::vector<std::optional<int64_t>> previous_end(out.size());
  for (const uint32_t event : frame.on_streams_by_start()) {
    if (!is_kernel(frame, event)) continue;
    const size_t at = index.at(frame.stream(event));
    int64_t gap = 0;
    IdleKind kind = IdleKind::kOther;
    if (previous_end[at]) {
      gap = events.ts[event] - *previous_end[at];
      uint32_t launch = frame.partners[event];
      // A correlation without a partner links to the first event of the file.
      if (launch == kNoPartner && events.correlation[event] != 0) launch = frame.first;
      if (launch != kNoPartner && frame.present[launch] && events.ts[launch] > *previous_end[at]) {
        kind = IdleKind::kHostWait;
      } else if (gap < consecutive_delay) {
        kind = IdleKind::kKernelWait;
      }
    }
    auto& sum = out[at].ns[static_cast<size_t>(kind)];
    sum = sum.value_or(0) + gap;
    previous_end[at] = events.end(event);
  }
  return out;
}

std::map<int64_t, HtaSummary> hta_queue_lengths(const HtaFrame& frame) {
  const Events& events = frame.trace->events;
  struct Change {
    int64_t ts = 0, stream = 0;
    int step = 0;
  };
  std::vector<uint32_t> host, launched;
  std::unordered_set<uint32_t> correlations;
  for (const uint32_t event : frame.rows) {
    if (frame.on_stream(event)) launched.push_back(event);
    if (!frame.linked(event) || !hta_queues(frame.name(event))) continue;
    host.push_back(event);
    correlations.insert(events.correlation[event]);
  }
  std::erase_if(launched, [&](uint32_t event) { return !correlations.contains(events.correlation[event]); });
  std::unordered_multimap<uint32_t, int64_t> streams;
  for (const uint32_t event : launched) streams.emplace(events.correlation[event], frame.stream(event));
  std::vector<Change> changes;
  for (const uint32_t event : host) {
    const auto [first, last] = streams.equal_range(events.correlation[event]);
    for (auto stream = first; stream != last; ++stream) changes.push_back({events.ts[event], stream->second, 1});
  }
  for (const uint32_t event : launched) changes.push_back({events.ts[event], frame.stream(event), -1});
  sort_by_time(changes);
  std::map<int64_t, std::vector<double>> lengths;
  for (const Change& change : changes) {
    std::vector<double>& points = lengths[change.stream];
    points.push_back((points.empty() ? 0 : points.back()) + change.step);
  }
  std::map<int64_t, HtaSummary> out;
  for (auto& [stream, points] : lengths) out[stream] = hta_summary(std::move(points));
  return out;
}

std::map<std::string, HtaSummary> hta_bandwidths(const HtaFrame& frame) {
  const Events& events = frame.trace->events;
  struct Change {
    int64_t ts = 0;
    uint32_t event = 0;
    double gb_per_s = 0;
  };
  std::vector<Change> changes, ends;
  for (const uint32_t event : frame.rows) {
    if (!frame.on_stream(event) || !hta_copies(frame.name(event))) continue;
    const double gb_per_s = frame.trace->details[events.details[event]].gb_per_s;
    const int64_t dur = events.dur[event] == 0 ? kMicrosecond : events.dur[event];
    changes.push_back({events.ts[event], event, gb_per_s});
    ends.push_back({events.ts[event] + dur, event, -gb_per_s});
  }
  changes.insert(changes.end(), ends.begin(), ends.end());
  sort_by_time(changes);
  std::map<std::string, std::pair<double, std::vector<double>>> kinds;  // the running sum, and its values above 0
  for (const Change& change : changes) {
    auto& [sum, points] = kinds[kind_of_copy(frame.name(change.event))];
    sum += change.gb_per_s;
    if (sum > 0) points.push_back(sum);
  }
  std::map<std::string, HtaSummary> out;
  for (auto& [kind, series] : kinds) {
    if (!series.second.empty()) out[kind] = hta_summary(std::move(series.second));
  }
  return out;
}

}  // namespace ms::profile
