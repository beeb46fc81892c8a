// The file of --attention-mask-grid: N lines of N digits, 1 where the queries of a line see the keys of a column, else
// 0. Blanks may stand between digits; lines that are empty, or whose first character but blanks is #, are skipped.
// Lines end with LF or CRLF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/layout/mask_grid.h"

namespace ms::train {

struct MaskGridFile {
  int64_t cells = 0;             // N, 1 to kMaxCoarseCells
  std::vector<uint8_t> visible;  // [cells, cells]: 0 or 1
};

// where: the file, as errors begin. Throws kCorruptData with line and column.
MaskGridFile parse_mask_grid(std::string_view text, std::string_view where);

// Throws what core::read_text throws, kCorruptData also for a position that would see no key, and kInvalidArgument if
// seq_length is not a multiple of the cells.
layout::MaskGrid read_mask_grid(const std::string& path, int64_t seq_length, bool is_causal);

}  // namespace ms::train
