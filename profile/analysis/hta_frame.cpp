#include "profile/analysis/hta_frame.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace ms::profile {
namespace {

bool has(std::string_view name, std::string_view word) { return name.find(word) != std::string_view::npos; }
bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return name.starts_with(word); });
}

// Whether HTA takes the event for the launched side of a pair. Device synchronisation counts without a stream.
bool is_launched(const HtaFrame& frame, uint32_t event) {
  if (frame.on_stream(event) && frame.trace->events.correlation[event] != 0) return true;
  const std::string_view name = frame.name(event);
  return name == "Event Sync" || name == "Context Sync";
}

std::vector<uint32_t> order_of_file(const RankTrace& trace) {
  std::vector<uint32_t> rows;
  const bool pseudo = std::any_of(trace.categories.begin(), trace.categories.end(),
                                  [&](const Category& c) { return trace.names[c.name] == "Trace"; });
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (pseudo && trace.names[trace.categories[trace.events.category[i]].name] == "Trace") continue;
    rows.push_back(i);
  }
  // HTA reads JSON exported from native traces, which has the order of the store.
  const Column<uint32_t>& place = trace.events.file_order;
  if (!place.empty() && trace.meta.empty())
    std::sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) { return place[a] < place[b]; });
  return rows;
}

std::vector<uint32_t> partners_of(const HtaFrame& frame) {
  const Column<uint32_t>& correlation = frame.trace->events.correlation;
  std::unordered_map<uint32_t, uint32_t> last_host, last_launched;
  for (const uint32_t event : frame.rows) {
    if (correlation[event] == 0) continue;
    (is_launched(frame, event) ? last_launched : last_host)[correlation[event]] = event;
  }
  std::vector<uint32_t> out(frame.trace->events.size(), kNoPartner);
  for (const uint32_t event : frame.rows) {
    if (correlation[event] == 0) continue;
    const auto& others = is_launched(frame, event) ? last_host : last_launched;
    if (const auto found = others.find(correlation[event]); found != others.end()) out[event] = found->second;
  }
  return out;
}

// Keeps the rows that HTA's step filter keeps. If a rank has no steps, its host events count as one.
void keep_steps(HtaFrame& frame, bool keep_last_step) {
  const Events& events = frame.trace->events;
  std::vector<uint32_t> host, launched;
  for (const uint32_t event : frame.rows) (is_launched(frame, event) ? launched : host).push_back(event);
  if (host.empty()) return;
  int64_t last_start = INT64_MIN, last_end = INT64_MIN, first = INT64_MAX, end = INT64_MIN;
  for (const uint32_t event : host) {
    first = std::min(first, events.ts[event]);
    end = std::max(end, events.end(event));
    if (hta_step_number(frame.name(event)) < 0) continue;
    last_start = std::max(last_start, events.ts[event]);
    last_end = std::max(last_end, events.end(event));
  }
  if (last_start == INT64_MIN) {
    last_start = first;
    last_end = end;
  }
  std::erase_if(host, [&](uint32_t event) {
    return keep_last_step ? events.ts[event] > last_end : events.ts[event] >= last_start;
  });
  std::unordered_map<uint32_t, int> launches;  // by correlation; 0, of events without one, counts as one
  for (const uint32_t event : host) ++launches[events.correlation[event]];
  frame.rows.clear();
  for (const uint32_t event : launched) {
    const auto found = launches.find(events.correlation[event]);
    if (found == launches.end()) continue;
    // Events without a correlation, which are on no stream, are kept once.
    frame.rows.insert(frame.rows.end(), events.correlation[event] == 0 ? 1 : static_cast<size_t>(found->second), event);
  }
  frame.rows.insert(frame.rows.end(), host.begin(), host.end());
}

}  // namespace

bool HtaFrame::on_stream(uint32_t event) const {
  const Lane& lane = trace->lanes[trace->events.lane[event]];
  const Details& details = trace->details[trace->events.details[event]];
  if (!lane.device) return details.names_stream;
  return (lane.id >= 0 || details.unsigned_stream) && category(event) != "gpu_user_annotation";
}

int64_t HtaFrame::stream(uint32_t event) const {
  const Lane& lane = trace->lanes[trace->events.lane[event]];
  if (!lane.device) return 0;
  return trace->details[trace->events.details[event]].unsigned_stream ? int64_t{UINT32_MAX} : lane.id;
}

std::vector<uint32_t> HtaFrame::on_streams_by_start() const {
  std::vector<uint32_t> out;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(out), [&](uint32_t event) { return on_stream(event); });
  std::stable_sort(out.begin(), out.end(),
                   [&](uint32_t a, uint32_t b) { return trace->events.ts[a] < trace->events.ts[b]; });
  return out;
}

std::vector<HtaFrame> hta_frames(const std::vector<std::unique_ptr<RankTrace>>& ranks, bool keep_last_step) {
  std::vector<HtaFrame> out;
  std::unordered_set<std::string> steps;
  for (const auto& trace : ranks) {
    HtaFrame& frame = out.emplace_back();
    frame.trace = trace.get();
    frame.rows = order_of_file(*trace);
    const bool known = trace->begins_with_slice && !trace->events.file_order.empty() && trace->meta.empty();
    if (known && !frame.rows.empty() && trace->events.file_order[frame.rows[0]] == 0) frame.first = frame.rows[0];
    frame.partners = partners_of(frame);
    std::unordered_set<NameId> seen;
    for (const uint32_t event : frame.rows) {
      const NameId name = trace->events.name[event];
      if (seen.insert(name).second && hta_step_number(trace->names[name]) >= 0) steps.insert(trace->names[name]);
    }
  }
  for (HtaFrame& frame : out) {
    if (steps.size() >= 2) keep_steps(frame, keep_last_step);
    frame.present.resize(frame.trace->events.size());
    for (const uint32_t event : frame.rows) frame.present[event] = true;
  }
  return out;
}

int64_t hta_step_number(std::string_view name) {
  constexpr std::string_view kStart = "ProfilerStep#";
  if (!name.starts_with(kStart)) return -1;
  int64_t number = -1;
  std::from_chars(name.data() + kStart.size(), name.data() + name.size(), number);
  return number;
}

bool hta_communicates(std::string_view name) {
  return begins_with_any(name, {"nccl", "hip", "hccl"}) || has(name, "ncclKernel");
}
bool hta_copies(std::string_view name) {
  return !hta_communicates(name) && begins_with_any(name, {"Memcpy", "Memset", "dma"});
}
bool hta_computes(std::string_view name) {
  for (const char* word : {"Memcpy", "Memset", "dma", "Sync"}) {
    if (has(name, word)) return false;
  }
  return !hta_communicates(name) && !(name.starts_with("cuda") && has(name, "LaunchKernel")) &&
         !begins_with_any(name, {"Stream Wait Event", "runFunction", "job_exe", "packet", "pe_exe", "cpum_exe_subgraph",
                                 "collective_subgraph_execution"});
}

}  // namespace ms::profile
