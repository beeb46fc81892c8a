// Joins the beginnings and ends of slices that have an event each, by time and by a stack of each track: events come in
// any order.
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
  size_t slice = kNoSlice;  // which event begins here; kNoSlice: an end
};

// Gives the slices their durations; those without an end last until last_end. What has no partner is counted in issues
// with `offset`. edges are put in order.
void join_edges(std::vector<SliceEdge>& edges, RankTrace& trace, int64_t last_end, FileIssues& issues, int64_t offset);

}  // namespace ms::profile::detail
