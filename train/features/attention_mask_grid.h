// Masks of blocks that a file gives: a grid of equal cells of queries and keys, the same for every sample. Attention
// computes the visible cells and no others, and adaptive context parallelism plans with them.
// Source: MindSpeed's general masks (--attention-mask-type general, --adaptive-cp-manually-set-mask-list), which are
// arrays that a user's Python code sets (mindspeed/core/context_parallel/utils.py).
#pragma once

#include <memory>
#include <string>

#include "core/layout/mask_grid.h"
#include "train/features/feature.h"

namespace ms::train {

struct AttentionMaskGridConfig {
  std::string attention_mask_grid;
  std::string attention_mask_type = "causal";
  // What resolve() makes of the file; empty before, and where the file is wrong.
  layout::SampleMask grid_mask;
  std::string grid_read_from;  // the flags from which it was made

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AttentionMaskGridConfig;
    field(
        "attention_mask_grid", &C::attention_mask_grid,
        "File with N lines of N digits 0 or 1, as numpy.savetxt writes with fmt=\"%d\": which of the N equal parts of "
        "a sample see which; N divides --seq-length, at most 1024. Line i: the queries of part i; its digit j: the "
        "keys of part j. Lines whose first character but blanks is # are skipped. The same for all samples; attention "
        "computes the visible parts alone");
    field("attention_mask_type", &C::attention_mask_type,
          "With --attention-mask-grid: causal: of what the grid shows, positions see those before them; general: they "
          "see all of it. The loss of tokens that are seen where they are predicted does not count");
  }
};

struct TrainingConfig;

// Of all samples of a resolved configuration: a prefix (prefix_mask.h) or a grid.
layout::SampleMask sample_mask(const TrainingConfig& training);

// Hash of the grid of a resolved configuration; empty without one. The ranks of a run compare it, and a run that
// continues compares it with its checkpoint's.
std::string grid_fingerprint(const TrainingConfig& training);

Feature attention_mask_grid_feature();

}  // namespace ms::train
