#include "train/model/document_ranges.h"

#include <algorithm>

#include "core/error.h"

namespace ms::train {
namespace {

// Positions [first, first + count), which follow one another, of a sample.
layout::Segment segment_of(const layout::SequenceShare& share, ops::RowSpan rows) {
  layout::Segment positions;
  share.for_each_run(rows.first, rows.first + rows.count, [&](int64_t, int64_t position, int64_t count) {
    positions = {position, count};
  });
  MS_CHECK(positions.count == rows.count, "rows of ", rows.count, " positions that do not follow one another");
  return positions;
}

// Rows of a document, and the first of its keys that they see: all of them before the rows of each run, and in a
// prefix.
void add_scattered(const layout::SequenceShare& queries, const layout::SequenceShare& keys, ops::RowSpan rows,
                   ops::AttentionRange of_document, int64_t prefix,
                   std::vector<std::vector<ops::AttentionRange>>& lists) {
  size_t list = 0;
  ops::AttentionRange* last = nullptr;
  queries.for_each_run(rows.first, rows.first + rows.count, [&](int64_t row, int64_t position, int64_t count) {
    const int64_t seen =
        std::min(of_document.keys, keys.rows_before(std::max(position, prefix)) - of_document.first_key);
    if (seen <= 0) return;
    if (last != nullptr && last->keys == seen) {
      last->rows += count;
      return;
    }
    if (list == lists.size()) lists.emplace_back();
    ops::AttentionRange& range = lists[list++].emplace_back(of_document);
    range.first_row = row;
    range.rows = count;
    range.keys = range.distance = seen;
    range.position = position;
    last = &range;
  });
}

}  // namespace

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

std::vector<ops::AttentionRange> segment_ranges(std::span<const int64_t> ends, int64_t batch,
                                                const layout::SequenceShare& queries, ops::RowSpan rows,
                                                const layout::SequenceShare& keys, ops::RowSpan seen, int64_t window,
                                                int64_t prefix) {
  const layout::Segment of_queries = segment_of(queries, rows), of_keys = segment_of(keys, seen);
  std::vector<ops::AttentionRange> ranges;
  // Of a document of a sample, positions [begin, end).
  const auto add = [&](int64_t sample, int64_t begin, int64_t end) {
    const int64_t first_query = std::max(begin, of_queries.first);
    int64_t first_key = std::max(begin, of_keys.first);
    const int64_t end_key = std::min(end, of_keys.first + of_keys.count);
    int64_t end_query = std::min(end, of_queries.first + of_queries.count);
    if (window > 0) {
      first_key = std::max(first_key, first_query - window + 1);
      end_query = std::min(end_query, end_key - 1 + window);
    }
    if (first_query >= end_query || first_key >= end_key) return;
    const int64_t of_prefix = std::clamp<int64_t>(prefix - first_key, 0, end_key - first_key);
    const bool is_behind = first_key > first_query;
    if (is_behind && of_prefix == 0) return;
    ranges.push_back({.sample = sample,
                      .first_row = rows.first + first_query - of_queries.first,
                      .rows = end_query - first_query,
                      .first_key = first_key - of_keys.first,
                      .keys = is_behind ? of_prefix : end_key - first_key,
                      .distance = is_behind ? of_prefix : first_query - first_key,
                      .position = first_query,
                      .column = first_key - begin,
                      .prefix = of_prefix});
  };
  const int64_t seq = queries.seq_length();
  if (ends.empty()) {
    for (int64_t sample = 0; sample < batch; ++sample) add(sample, 0, seq);
    return ranges;
  }
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t sample = begin / seq;
    add(sample, begin - sample * seq, end - sample * seq);
    begin = end;
  }
  return ranges;
}

std::vector<std::vector<ops::AttentionRange>> scattered_ranges(std::span<const int64_t> ends, int64_t batch,
                                                               const layout::SequenceShare& queries,
                                                               const layout::SequenceShare& keys, int64_t prefix) {
  const int64_t seq = queries.seq_length();
  std::vector<int64_t> samples;
  if (ends.empty()) {
    for (int64_t sample = 1; sample <= batch; ++sample) samples.push_back(sample * seq);
    ends = samples;
  }
  const bool is_same = queries.segments().front().first == keys.segments().front().first;
  std::vector<std::vector<ops::AttentionRange>> lists;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t sample = begin / seq, first = begin - sample * seq, behind = end - sample * seq;
    begin = end;
    if (sample >= batch) break;
    const int64_t first_row = queries.rows_before(first), first_key = keys.rows_before(first);
    const ops::RowSpan rows{first_row, queries.rows_before(behind) - first_row};
    const int64_t num_keys = keys.rows_before(behind) - first_key;
    if (rows.count == 0 || num_keys == 0) continue;
    ops::AttentionRange range{.sample = sample, .first_key = first_key, .keys = num_keys};
    if (!is_same) {
      add_scattered(queries, keys, rows, range, prefix, lists);
      continue;
    }
    range.first_row = rows.first;
    range.rows = rows.count;
    range.prefix = keys.rows_before(prefix);
    if (lists.empty()) lists.emplace_back();
    lists.front().push_back(range);
  }
  return lists;
}

std::vector<ops::AttentionRange> ranges_of_lists(const layout::RunLists& lists, int64_t batch, int64_t rows,
                                                 int64_t keys, int64_t first_row) {
  std::vector<ops::AttentionRange> ranges;
  for (int64_t sample = 0; sample < batch; ++sample)
    ranges.push_back({.sample = sample, .first_row = first_row, .rows = rows, .keys = keys, .runs = lists.view()});
  return ranges;
}

}  // namespace ms::train
