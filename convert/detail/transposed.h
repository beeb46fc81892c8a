// Writes matrices that a foreign format stores transposed: GPT-2's are [in, out], ours [out, in].
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::convert::detail {

// Writes elements [first, first + count) of one of our matrices (`columns` columns, whole rows at `data`) as columns of
// the stored matrix, which has stored_columns columns; our first row is its first column. put(offset_bytes, bytes)
// receives a run of a stored row, one call per column of ours.
void put_transposed(const std::byte* data, int64_t item, int64_t columns, int64_t first, int64_t count,
                    int64_t stored_columns, const auto& put) {
  MS_CHECK(first % columns == 0 && count % columns == 0, "a transposed matrix is written in whole rows");
  const int64_t first_row = first / columns, rows = count / columns;
  std::vector<std::byte> run(static_cast<size_t>(rows * item));
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(run.data() + row * item, data + (row * columns + column) * item, static_cast<size_t>(item));
    }
    put((column * stored_columns + first_row) * item, std::span<const std::byte>(run));
  }
}

// Rounds a chunk down to whole rows, as put_transposed requires, unless a row exceeds it.
inline int64_t chunk_of_whole_rows(const core::ShardedTensor& target, int64_t chunk) {
  const int64_t row = target.local_shape.size() == 2 ? target.local_shape[1] : 1;
  return row > 0 && row <= chunk ? chunk / row * row : chunk;
}

}  // namespace ms::convert::detail
