// Reads column ranges of matrices by way of panels: runs of whole rows that each disk read brings once.
//
// A target that is split by columns (row-parallel weights of tensor parallelism) takes a short run of each source row;
// its neighbours take the rest of the same rows. Read one by one, these runs are small, or each target reads all rows
// again. A panel is read once, by the first thread that needs it, with one large request, and serves all targets.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/detail/chunk_cache.h"
#include "ckpt/source.h"

namespace ms::ckpt::detail {

class PanelReader {
 public:
  // cache_bytes: memory for panels; at least one panel a thread and one more are kept.
  PanelReader(Source& source, int64_t cache_bytes, int threads);

  // As Source::read_into(), thread-safe. Boxes that are not short runs of rows go to the source.
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset);

 private:
  Source& source_;
  std::vector<uint32_t> first_panel_;  // of each shard
  ChunkCache cache_;
};

}  // namespace ms::ckpt::detail
