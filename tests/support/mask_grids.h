// Grids for tests of masks, and the file of one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/layout/mask_grid.h"
#include "core/rng.h"

namespace ms::test {

using SeesCell = std::function<bool(int64_t query, int64_t key)>;

inline std::shared_ptr<const layout::MaskGrid> make_grid(int64_t seq, int64_t cells, bool is_causal,
                                                         const SeesCell& sees) {
  layout::CoarseMask visible(seq, cells);
  for (int64_t query = 0; query < cells; ++query)
    for (int64_t key = 0; key < cells; ++key)
      if (sees(query, key)) visible.show(query, key);
  return std::make_shared<const layout::MaskGrid>(std::move(visible), is_causal);
}

// The own cell, and so many percent of the others.
inline SeesCell random_cells(int64_t cells, uint64_t percent, uint64_t seed) {
  return [=](int64_t query, int64_t key) {
    const core::Rng rng(seed, "a grid");
    return query == key || rng.below(static_cast<uint64_t>(query * cells + key), 100) < percent;
  };
}

// Blocks of so many cells, each of which sees all of its own.
inline SeesCell block_cells(int64_t cells) {
  return [=](int64_t query, int64_t key) { return query / cells == key / cells; };
}

// As --attention-mask-grid reads it.
inline std::string grid_text(int64_t cells, const SeesCell& sees) {
  std::string text;
  for (int64_t query = 0; query < cells; ++query) {
    for (int64_t key = 0; key < cells; ++key) text += sees(query, key) ? '1' : '0';
    text += '\n';
  }
  return text;
}

}  // namespace ms::test
