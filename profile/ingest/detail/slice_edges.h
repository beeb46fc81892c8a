// Joins begin and end events of slices by time, with a stack per track; the events may come in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/ingest/detail/file_issues.h"
#include "profile/store.h"

namespace ms::profile::detail {

inline constexpr size_t kNoSlice = SIZE_MAX;

struct SliceEdge {
  int64_t ts = 0;
  uint64_t track = 0;
  size_t slice = kNoSlice;  // the event that begins here; kNoSlice: an end
};

// Sets the durations of the slices; those without an end last until last_end. Unmatched edges are counted in issues at
// `offset`. Sorts edges.
void join_edges(std::vector<SliceEdge>& edges, RankTrace& trace, int64_t last_end, FileIssues& issues, int64_t offset);

}  // namespace ms::profile::detail
