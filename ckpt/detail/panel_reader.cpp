#include "ckpt/detail/panel_reader.h"

#include <algorithm>

#include "ckpt/copy_box.h"
#include "core/error.h"

namespace ms::ckpt::detail {
namespace {

constexpr int64_t kPanelBytes = int64_t{4} << 20;
// With a wider gap between the runs of a box, reading the runs alone is cheaper.
constexpr int64_t kMaxGapBytes = int64_t{64} << 10;
constexpr int64_t kMaxRowBytes = int64_t{512} << 10;

// Rows per panel. Panels are about equal, because a short last one would be a small read.
int64_t rows_of_panel(const core::Dims& shape, int64_t item) {
  const int64_t most = std::max<int64_t>(1, kPanelBytes / (shape[1] * item)), panels = (shape[0] + most - 1) / most;
  return std::max<int64_t>(1, (shape[0] + panels - 1) / std::max<int64_t>(1, panels));
}

bool is_matrix_of_panels(const core::Dims& shape, int64_t item) {
  return shape.size() == 2 && shape[1] > 0 && shape[1] * item <= kMaxRowBytes;
}

}  // namespace

PanelReader::PanelReader(Source& source, int64_t cache_bytes, int threads)
    : source_(source),
      cache_(static_cast<size_t>(std::max(cache_bytes / kPanelBytes, int64_t{threads} + 1)), kPanelBytes) {
  const ShardTable& shards = source.shards();
  uint64_t panels = 0;
  first_panel_.reserve(shards.size());
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    first_panel_.push_back(static_cast<uint32_t>(panels));
    const core::Dims shape = shards.extents(shard);
    const int64_t item = core::size_of(shards.dtype_of(shard));
    if (!is_matrix_of_panels(shape, item)) continue;
    const int64_t rows = rows_of_panel(shape, item);
    panels += static_cast<uint64_t>((shape[0] + rows - 1) / rows);
  }
  MS_CHECK(panels <= UINT32_MAX, panels, " panels");  // of 2 MiB and more: 8 PiB
}

void PanelReader::read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                            const core::Dims& out_shape, const core::Dims& out_offset) {
  const core::Dims shape = source_.shards().extents(static_cast<size_t>(shard));
  const int64_t item = core::size_of(source_.shards().dtype_of(static_cast<size_t>(shard)));
  if (!is_matrix_of_panels(shape, item) || extent[0] < 2 || extent[1] == 0 || extent[1] == shape[1] ||
      (shape[1] - extent[1]) * item >= kMaxGapBytes) {
    return source_.read_into(shard, offset, extent, out, out_shape, out_offset);
  }
  const int64_t rows = rows_of_panel(shape, item);
  const int64_t first = offset[0] / rows, count = (offset[0] + extent[0] - 1) / rows - first + 1;
  // Neighbours ask for the same panels at the same time: each begins with another one, so that several are read at
  // once.
  const int64_t begin = offset[1] * count / shape[1];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t panel = first + (begin + i) % count, panel_row = panel * rows;
    const int64_t panel_rows = std::min(rows, shape[0] - panel_row);
    const auto index = first_panel_[static_cast<size_t>(shard)] + static_cast<uint32_t>(panel);
    const ChunkCache::Chunk held = cache_.get(index, [&](std::byte* to) {
      source_.read(shard, {panel_row, 0}, {panel_rows, shape[1]}, to);
    });
    const int64_t from = std::max(offset[0], panel_row), to = std::min(offset[0] + extent[0], panel_row + panel_rows);
    copy_box(held.get(), {panel_rows, shape[1]}, {from - panel_row, offset[1]}, out, out_shape,
             {out_offset[0] + from - offset[0], out_offset[1]}, {to - from, extent[1]}, item);
  }
}

}  // namespace ms::ckpt::detail
