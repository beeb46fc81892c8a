#include "core/layout/sharding.h"

#include <algorithm>

#include "core/error.h"

namespace ms::layout {
namespace {

int64_t rounded_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

FlatRange distributed_range(int64_t numel, int dp_size, int dp_rank) {
  if (dp_size == 1) return {0, numel};
  const int64_t block = ((numel + dp_size - 1) / dp_size + 63) / 64 * 64;
  return {std::min(numel, block * dp_rank), std::min(numel, block * (dp_rank + 1))};
}

int64_t aligned_size(int64_t numel) { return rounded_up(numel, kStartAlignment); }

int64_t buffer_size(int64_t aligned_sizes, int dp_size) { return rounded_up(aligned_sizes, int64_t{128} * dp_size); }

FlatRange block_of_buffer(int64_t size, int dp_size, int dp_rank) {
  MS_CHECK(size % dp_size == 0, "a buffer of ", size, " elements for ", dp_size, " ranks");
  const int64_t block = size / dp_size;
  return {block * dp_rank, block * (dp_rank + 1)};
}

}  // namespace ms::layout
