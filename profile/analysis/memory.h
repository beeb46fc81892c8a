// Memory: copies and memsets by kind, and the allocator's history.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// HtoD, DtoH, DtoD, HtoH, Memset or other, by the name of a copy.
const char* copy_kind(std::string_view name);

struct MemoryOperation {
  int64_t count = 0, ns = 0;
  int64_t bytes = -1;  // -1: no event of the kind has them
};
// By copy_kind. Bandwidth is bytes over ns.
std::map<std::string, MemoryOperation> memory_operations(const RankTrace& trace, const DeviceView& view);

struct LiveBlock {
  std::string owner;  // operator that allocated it, else the allocator's tag
  int64_t bytes = 0, blocks = 0;
};

struct MemoryTimeline {  // bytes
  int64_t events = 0;
  int64_t peak_allocated = 0, peak_reserved = 0;  // largest totals that the allocator reported
  int64_t sum_bytes = 0, peak_running = 0;        // from the changes themselves
  int64_t peak_at = 0;                            // time of the largest running sum
  int64_t live_blocks = 0, live_bytes = 0;        // allocated in the trace, not freed before its end
  int64_t frees_without_allocation = 0;
  std::vector<LiveBlock> at_peak;  // live blocks at peak_at, by bytes descending
};
// By (device type, device): (0, -1) is the host, (1, 0) the first CUDA device.
std::map<std::pair<int, int>, MemoryTimeline> memory_timelines(const RankTrace& trace);

struct MemoryUse {
  std::map<std::string, MemoryOperation> operations;
  std::map<std::pair<int, int>, MemoryTimeline> timelines;
};

}  // namespace ms::profile
