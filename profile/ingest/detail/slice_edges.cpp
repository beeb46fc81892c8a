#include "profile/ingest/detail/slice_edges.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"

namespace ms::profile::detail {

void join_edges(std::vector<SliceEdge>& edges, RankTrace& trace, int64_t last_end, FileIssues& issues, int64_t offset) {
  Events& events = trace.events;
  const auto earlier = [](const SliceEdge& a, const SliceEdge& b) { return a.ts < b.ts; };
  if (!std::is_sorted(edges.begin(), edges.end(), earlier)) std::stable_sort(edges.begin(), edges.end(), earlier);
  std::unordered_map<uint64_t, std::vector<size_t>> open;
  for (const SliceEdge& edge : edges) {
    std::vector<size_t>& slices = open[edge.track];
    if (edge.slice != kNoSlice) {
      slices.push_back(edge.slice);
    } else if (slices.empty()) {
      issues.add("unmatched_end", offset, core::cat("at ", edge.ts, " ns"));
    } else {
      events.dur[slices.back()] = edge.ts - events.ts[slices.back()];
      slices.pop_back();
    }
  }
  for (const auto& [track, slices] : open) {
    for (const size_t i : slices) {
      issues.add("unmatched_begin", offset, trace.names[events.name[i]]);
      events.dur[i] = std::max<int64_t>(0, last_end - events.ts[i]);
    }
  }
}

}  // namespace ms::profile::detail
