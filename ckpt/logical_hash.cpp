#include "ckpt/logical_hash.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "core/error.h"
#include "kernels/checksum.h"
#include "kernels/rows.h"

namespace ms::ckpt {
namespace {

constexpr int64_t kCellsAtOnce = 16;

uint64_t mixed(uint64_t cell_xxh3, uint64_t index) {
  uint64_t m = cell_xxh3 ^ (index * 0x9E3779B97F4A7C15u);
  m ^= m >> 32;
  m *= 0xD6E8FEB86659FD93u;
  m ^= m >> 32;
  return m;
}

int64_t last_axis(const core::Dims& shape) { return shape.empty() ? 1 : shape.back(); }

// The sum over `cells` whole cells of 64 elements of a row.
uint64_t sum_of_cells(const std::byte* data, size_t cell_bytes, size_t cells, uint64_t first_index) {
  std::array<uint64_t, kCellsAtOnce> hashes;
  kernels::xxh3_each(data, cell_bytes, cells, hashes.data());
  uint64_t sum = 0;
  for (size_t i = 0; i < cells; ++i) sum += mixed(hashes[i], first_index + i);
  return sum;
}

// after: called with the end of every cell, run of cells or part of a cell that was added.
template <class After>
void add_cells(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
               LogicalPartial& partial, const After& after) {
  const int64_t item = core::size_of(shard.dtype);
  const int64_t width = last_axis(shard.global_shape);
  const int64_t cells_per_row = (width + kLogicalCell - 1) / kLogicalCell;
  const int64_t local_width = last_axis(shard.local_shape);
  const int64_t column_offset = shard.global_offset.empty() ? 0 : shard.global_offset.back();
  const core::Dims local_rows(shard.local_shape.begin(), shard.local_shape.end() - (shard.local_shape.empty() ? 0 : 1));
  core::Dims index(local_rows.size());
  uint64_t sum = 0;
  while (count > 0) {
    // One row of the shard, or its part within the range.
    int64_t rest = first / local_width;
    for (size_t axis = local_rows.size(); axis-- > 0; rest /= local_rows[axis]) {
      index[axis] = shard.global_offset[axis] + rest % local_rows[axis];
    }
    int64_t row = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) row = row * shard.global_shape[axis] + index[axis];
    const int64_t begin = first % local_width;
    const int64_t taken = std::min(count, local_width - begin);
    int64_t column = column_offset + begin;
    const int64_t end = column + taken;
    while (column < end) {
      const int64_t cell = column / kLogicalCell;
      const int64_t cell_begin = cell * kLogicalCell;
      const int64_t cell_end = std::min(cell_begin + kLogicalCell, width);
      int64_t stop = std::min(cell_end, end);
      const auto cell_index = static_cast<uint64_t>(row * cells_per_row + cell);
      const int64_t whole = column == cell_begin ? std::min((end - column) / kLogicalCell, kCellsAtOnce) : 0;
      if (whole > 0) stop = column + whole * kLogicalCell;
      const auto size_bytes = static_cast<size_t>((stop - column) * item);
      if (whole > 0) {
        sum += sum_of_cells(data, static_cast<size_t>(kLogicalCell * item), static_cast<size_t>(whole), cell_index);
      } else if (column == cell_begin && stop == cell_end) {  // the last cell of a row, shorter
        sum += mixed(kernels::xxh3(data, size_bytes), cell_index);
      } else {
        partial.pieces.push_back(
            {cell_index, static_cast<uint32_t>(column - cell_begin), static_cast<uint32_t>(stop - column)});
        partial.bytes.insert(partial.bytes.end(), data, data + size_bytes);
      }
      data += size_bytes;
      column = stop;
      after(data);
    }
    first += taken;
    count -= taken;
  }
  partial.sum += sum;
}

// also: called with each piece of the chunk in order, as begin and bytes, while it is in the L1 cache.
template <class Also>
uint64_t hash_both(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                   LogicalPartial& partial, const Also& also) {
  constexpr std::ptrdiff_t kPiece = 4096;
  const std::byte *hashed = data, *const end = data + count * core::size_of(shard.dtype);
  kernels::Xxh3 hash;
  add_cells(shard, first, count, data, partial, [&](const std::byte* added) {
    if (added - hashed < kPiece && added != end) return;
    hash.update(hashed, static_cast<size_t>(added - hashed));
    also(hashed, added - hashed);
    hashed = added;
  });
  return hash.digest();
}

}  // namespace

void LogicalPartial::merge(const LogicalPartial& other) {
  sum += other.sum;
  pieces.insert(pieces.end(), other.pieces.begin(), other.pieces.end());
  bytes.insert(bytes.end(), other.bytes.begin(), other.bytes.end());
}

void add_logical(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                 LogicalPartial& partial) {
  add_cells(shard, first, count, data, partial, [](const std::byte*) {});
}

uint64_t hash_chunk(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                    LogicalPartial& partial) {
  return hash_both(shard, first, count, data, partial, [](const std::byte*, int64_t) {});
}

uint64_t copy_and_hash_chunk(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                             std::byte* to, LogicalPartial& partial) {
  const uint64_t hash = hash_both(shard, first, count, data, partial, [&](const std::byte* piece, int64_t bytes) {
    kernels::copy_piece(piece, bytes, to + (piece - data));
  });
  kernels::store_fence();
  return hash;
}

bool has_whole_cells(const core::ShardedTensor& shard) {
  const int64_t begin = shard.global_offset.empty() ? 0 : shard.global_offset.back();
  const int64_t end = begin + last_axis(shard.local_shape);
  return begin % kLogicalCell == 0 && (end % kLogicalCell == 0 || end == last_axis(shard.global_shape));
}

uint64_t finish_logical(core::DType dtype, const core::Dims& global_shape, const LogicalPartial& partial) {
  const auto item = static_cast<size_t>(core::size_of(dtype));
  const int64_t width = last_axis(global_shape);
  const int64_t cells_per_row = (width + kLogicalCell - 1) / kLogicalCell;
  std::vector<size_t> place(partial.pieces.size());  // offset of each piece's bytes
  size_t at = 0;
  for (size_t i = 0; i < place.size(); ++i) {
    place[i] = at;
    at += partial.pieces[i].count * item;
  }
  MS_CHECK(at == partial.bytes.size(), "pieces of cells hold ", partial.bytes.size(), " bytes, not ", at);
  std::vector<size_t> order(partial.pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto &left = partial.pieces[a], &right = partial.pieces[b];
    return left.cell != right.cell ? left.cell < right.cell : left.begin < right.begin;
  });
  uint64_t sum = partial.sum;
  std::vector<std::byte> cell;
  for (size_t i = 0; i < order.size();) {
    const uint64_t index = partial.pieces[order[i]].cell;
    const int64_t cell_begin = static_cast<int64_t>(index) % cells_per_row * kLogicalCell;
    const auto want = static_cast<size_t>(std::min(kLogicalCell, width - cell_begin));
    cell.clear();
    for (; i < order.size() && partial.pieces[order[i]].cell == index; ++i) {
      const auto& piece = partial.pieces[order[i]];
      MS_CHECK(piece.begin * item == cell.size(), "cell ", index, " has a hole or an overlap at element ", piece.begin);
      const std::byte* bytes = partial.bytes.data() + place[order[i]];
      cell.insert(cell.end(), bytes, bytes + piece.count * item);
    }
    MS_CHECK(cell.size() == want * item, "cell ", index, " has ", cell.size(), " bytes, not ", want * item);
    sum += mixed(kernels::xxh3(cell.data(), cell.size()), index);
  }
  std::string identity = core::cat(core::dtype_name(dtype), "|");
  for (size_t axis = 0; axis < global_shape.size(); ++axis) {
    identity += core::cat(axis == 0 ? "" : ",", global_shape[axis]);
  }
  return sum ^ kernels::xxh3(identity.data(), identity.size());
}

}  // namespace ms::ckpt
