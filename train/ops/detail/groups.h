// Checks of, and loops over, groups of consecutive rows, for the operators over experts.
#pragma once

#include <algorithm>
#include <span>

#include "core/error.h"

namespace ms::ops::detail {

// Throws kInvalidArgument unless ends describe that many groups of that many rows.
inline void check_ends(std::span<const int64_t> ends, int64_t groups, int64_t rows) {
  int64_t before = 0;
  bool rises = true;
  for (const int64_t end : ends) {
    rises = rises && end >= before;
    before = end;
  }
  if (rises && before == rows && static_cast<int64_t>(ends.size()) == groups) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("grouped matmul: group ends ", ends, " for ", groups, " groups of ", rows,
                              " rows; they are sums of the groups' sizes"));
}

// Calls visit(group, first row, rows) for each group.
template <class Visit>
void for_groups(std::span<const int64_t> ends, const Visit& visit) {
  int64_t begin = 0;
  for (size_t group = 0; group < ends.size(); ++group) {
    visit(static_cast<int64_t>(group), begin, ends[group] - begin);
    begin = ends[group];
  }
}

// Calls visit(row, group) for rows [begin, end).
template <class Visit>
void for_rows(std::span<const int64_t> ends, int64_t begin, int64_t end, const Visit& visit) {
  auto group = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
  for (int64_t row = begin; row < end; ++row) {
    while (row >= ends[static_cast<size_t>(group)]) ++group;
    visit(row, static_cast<int64_t>(group));
  }
}

}  // namespace ms::ops::detail
