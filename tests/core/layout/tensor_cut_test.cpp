#include "core/layout/tensor_cut.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using test::small_model;

// Which rank holds which element, from the definitions instead of boxes: the global index of element (row, column) of
// the tensor-parallel local tensor, -1 for vocabulary padding.
int64_t naive_global(const ParameterSpec& spec, const core::TransformerConfig& config, int tp, int tp_rank, int64_t row,
                     int64_t column) {
  const int64_t columns = spec.global_shape.size() > 1 ? spec.global_shape[1] : 1;
  switch (spec.rule) {
    case TpRule::kReplicated:
      return row * columns + column;
    case TpRule::kRows:
      return (tp_rank * (spec.global_shape[0] / tp) + row) * columns + column;
    case TpRule::kColumns:
      return row * columns + tp_rank * (columns / tp) + column;
    case TpRule::kGatedRows: {
      const int64_t half = spec.global_shape[0] / 2, local_half = half / tp;
      const bool up = row >= local_half;
      return ((up ? half : 0) + tp_rank * local_half + (up ? row - local_half : row)) * columns + column;
    }
    case TpRule::kVocabRows: {
      const int64_t global_row = tp_rank * (config.padded_vocab_size(tp) / tp) + row;
      return global_row < config.vocab_size ? global_row * columns + column : -1;
    }
  }
  return -1;
}

TEST(TensorCut, BoxesOfLocalRangesMatchTheDefinition) {
  for (const int64_t vocab : {17, 127, 31123}) {
    const auto config = small_model(vocab);
    for (const int tp : {1, 2, 4}) {
      for (const ParameterSpec& spec : parameter_specs(config)) {
        const core::Dims local = local_shape(spec, config, tp);
        const int64_t columns = local.size() > 1 ? local[1] : 1, numel = core::num_elements(local);
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, numel}, {numel / 3, numel / 3 * 2 + 1}}) {
          for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
            std::vector<int64_t> expected, seen;
            for (int64_t i = begin; i < end; ++i) {
              const int64_t global = naive_global(spec, config, tp, tp_rank, i / columns, i % columns);
              if (global >= 0) expected.push_back(global);
            }
            for (const Box& box : boxes_of_local_range(spec, config, tp, tp_rank, begin, end)) {
              const int64_t rows = box.extent[0], width = box.extent.size() > 1 ? box.extent[1] : 1;
              for (int64_t r = 0; r < rows; ++r) {
                for (int64_t c = 0; c < width; ++c) {
                  core::Dims index{box.offset[0] + r};
                  if (box.extent.size() > 1) index.push_back(box.offset[1] + c);
                  seen.push_back(flat_index(spec.global_shape, index));
                }
              }
            }
            ASSERT_EQ(seen, expected) << spec.key << " vocab " << vocab << " tp " << tp << " rank " << tp_rank;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::layout
