#include "profile/analysis/memory.h"

#include <algorithm>
#include <unordered_map>

#include "profile/analysis/operators.h"

namespace ms::profile {
namespace {

struct Block {
  int64_t bytes = 0;
  NameId owner = 0;
};
using Blocks = std::unordered_map<int64_t, Block>;  // by address

std::vector<LiveBlock> owners_of(const RankTrace& trace, const Blocks& blocks) {
  std::map<NameId, LiveBlock> owners;
  for (const auto& [address, block] : blocks) {
    LiveBlock& owner = owners[block.owner];
    owner.bytes += block.bytes;
    ++owner.blocks;
  }
  std::vector<LiveBlock> out;
  for (auto& [name, owner] : owners) {
    owner.owner = trace.names[name];
    out.push_back(std::move(owner));
  }
  std::stable_sort(out.begin(), out.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace

const char* copy_kind(std::string_view name) {
  for (const char* kind : {"HtoD", "DtoH", "DtoD", "HtoH", "Memset"}) {
    if (name.find(kind) != std::string_view::npos) return kind;
  }
  constexpr std::pair<std::string_view, const char*> kLong[] = {{"HostToDevice", "HtoD"},   {"DeviceToHost", "DtoH"},
                                                                {"DeviceToDevice", "DtoD"}, {"HostToHost", "HtoH"},
                                                                {"memset", "Memset"},       {"FillBuffer", "Memset"}};
  for (const auto& [word, kind] : kLong) {
    if (name.find(word) != std::string_view::npos) return kind;
  }
  return "other";
}

std::map<std::string, MemoryOperation> memory_operations(const RankTrace& trace, const DeviceView& view) {
  std::map<std::string, MemoryOperation> out;
  for (const DeviceEvent& device : view.devices) {
    if (device.device_class != DeviceClass::kMemory) continue;
    MemoryOperation& operation = out[copy_kind(trace.names[trace.events.name[device.event]])];
    ++operation.count;
    operation.ns += trace.events.dur[device.event];
    const int64_t bytes = trace.details[trace.events.details[device.event]].bytes;
    if (bytes >= 0) operation.bytes = std::max<int64_t>(operation.bytes, 0) + bytes;
  }
  return out;
}

std::map<std::pair<int, int>, MemoryTimeline> memory_timelines(const RankTrace& trace) {
  std::map<std::pair<int, int>, MemoryTimeline> out;
  std::map<std::pair<int, int>, int64_t> running;
  for (const MemoryChange& change : trace.memory) {
    const std::pair<int, int> device{change.device_type, change.device};
    MemoryTimeline& timeline = out[device];
    ++timeline.events;
    timeline.peak_allocated = std::max(timeline.peak_allocated, change.total);
    timeline.peak_reserved = std::max(timeline.peak_reserved, change.reserved);
    int64_t& now = running[device];
    now += change.bytes;
    timeline.sum_bytes = now;
    if (now > timeline.peak_running) {
      timeline.peak_running = now;
      timeline.peak_at = change.ts;
    }
  }
  // Second pass, with the blocks: only now is the time of the peak known.
  OperatorCursor operators(trace);
  std::map<std::pair<int, int>, Blocks> blocks;
  for (const MemoryChange& change : trace.memory) {
    const std::pair<int, int> device{change.device_type, change.device};
    MemoryTimeline& timeline = out[device];
    Blocks& live = blocks[device];
    if (change.bytes > 0) {
      const NameId inside = operators.innermost(change.lane, change.ts);
      live[change.address] = {change.bytes, inside != 0 ? inside : change.tag};
    } else if (live.erase(change.address) == 0) {
      ++timeline.frees_without_allocation;
    }
    if (change.ts == timeline.peak_at && timeline.at_peak.empty()) timeline.at_peak = owners_of(trace, live);
  }
  for (const auto& [device, live] : blocks) {
    MemoryTimeline& timeline = out[device];
    timeline.live_blocks = static_cast<int64_t>(live.size());
    for (const auto& [address, block] : live) timeline.live_bytes += block.bytes;
  }
  return out;
}

}  // namespace ms::profile
