// Which rows of keys the rows of queries see, where samples, or the documents of packed ones, are on ranks that share
// sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/context_parallel.h"
#include "core/layout/mask_grid.h"
#include "train/ops/range_attention.h"

namespace ms::train {

// One range for each document, of each of `batch` samples, that has rows of both sides: the rows of queries within
// `rows`, which have the positions of `queries`, and the first num_keys rows of keys, which have those of `keys`.
// Empty: no document spans the two. ends: ops::AttentionParams::document_ends, of whole sequences.
//
// From the first of the rows of a document on, the rows of keys must go up with them, or all be before them: so it is
// where both are one share, or keys are whole sequences and the rows of one segment, or the keys are before the rows.
std::vector<ops::AttentionRange> document_ranges(std::span<const int64_t> ends, int64_t batch,
                                                 const layout::SequenceShare& queries, ops::RowSpan rows,
                                                 const layout::SequenceShare& keys, int64_t num_keys);

// The same where the positions of `rows` follow one another, as those of `seen`, rows of keys, do: with the distances
// that windows, biases and dropout depend on. Without what is beyond the window (ops::AttentionParams; 0: none) of all
// queries, or of all keys. ends: empty if each sample is one document. Ranges count keys from the first of `seen` on.
// prefix: positions of a sample that all queries see (ops::AttentionParams).
std::vector<ops::AttentionRange> segment_ranges(std::span<const int64_t> ends, int64_t batch,
                                                const layout::SequenceShare& queries, ops::RowSpan rows,
                                                const layout::SequenceShare& keys, ops::RowSpan seen, int64_t window,
                                                int64_t prefix = 0);

// As document_ranges for all rows of queries and of keys of shares of many segments: either both are one share, or they
// have no position in common. Documents (whole samples, if `ends` is empty) see their own positions up to each query's.
// In lists that are attended one after the other: in each no row and no key has two ranges. No list: no document spans
// the two. prefix: as above.
std::vector<std::vector<ops::AttentionRange>> scattered_ranges(std::span<const int64_t> ends, int64_t batch,
                                                               const layout::SequenceShare& queries,
                                                               const layout::SequenceShare& keys, int64_t prefix = 0);

// Of a grid: one range of all `rows` and `keys` for each sample. Refers to the lists.
std::vector<ops::AttentionRange> ranges_of_lists(const layout::RunLists& lists, int64_t batch, int64_t rows,
                                                 int64_t keys, int64_t first_row = 0);

}  // namespace ms::train
