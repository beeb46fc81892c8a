#include "train/model/document_ranges.h"

#include <algorithm>

namespace ms::train {

std::vector<ops::AttentionRange> document_ranges(std::span<const int64_t> ends, int64_t batch,
                                                 const layout::SequenceShare& queries, ops::RowSpan rows,
                                                 const layout::SequenceShare& keys, int64_t num_keys) {
  std::vector<ops::AttentionRange> ranges;
  const int64_t seq = queries.seq_length();
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t sample = begin / seq, first = begin - sample * seq, behind = end - sample * seq;
    begin = end;
    if (sample >= batch) break;
    const int64_t first_row = std::max(rows.first, queries.rows_before(first));
    const int64_t end_row = std::min(rows.first + rows.count, queries.rows_before(behind));
    const int64_t first_key = keys.rows_before(first), end_key = std::min(num_keys, keys.rows_before(behind));
    if (first_row >= end_row || first_key >= end_key) continue;
    int64_t position = 0;
    queries.for_each_run(first_row, first_row + 1, [&](int64_t, int64_t at, int64_t) { position = at; });
    ranges.push_back({.sample = sample,
                      .first_row = first_row,
                      .rows = end_row - first_row,
                      .first_key = first_key,
                      .keys = end_key - first_key,
                      .distance = keys.rows_before(position) - first_key,
                      .position = position});
  }
  return ranges;
}

}  // namespace ms::train
