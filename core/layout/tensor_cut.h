// Which elements of a parameter a tensor-parallel rank holds, and where they are in its memory. Boxes of the gated MLP
// as in megatron/core/transformer/mlp.py (sharded_state_dict).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/transformer_config.h"

namespace ms::layout {

// Shape of the parameter in the memory of a tensor-parallel rank: vocabulary rows include the padding, gated rows are
// the gate part followed by the up part.
core::Dims local_shape(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size);

// The boxes of the global tensor that correspond to the elements [begin, end) of the flat local tensor (local_shape,
// row-major), in local order and without gaps: each box is dense in local memory and starts where the previous one
// ended, the first at `begin`. Vocabulary padding belongs to no box; it is always at the end.
std::vector<Box> boxes_of_local_range(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size,
                                      int tp_rank, int64_t begin, int64_t end);

// Writes local_shape to an array of kMaxAxes; returns the number of axes.
size_t local_dims(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size, int64_t* shape);

// As boxes_of_local_range, without allocating a Box per box: emit(offset, extent), one number per axis at each pointer.
template <class Emit>
void for_each_local_box(const ParameterSpec& spec, const core::TransformerConfig& config, int tp_size, int tp_rank,
                        int64_t begin, int64_t end, const Emit& emit) {
  // The local tensor is a stack of parts; each is a box of the global tensor at offset `start`.
  std::array<int64_t, kMaxAxes> local, start{}, offset;
  const size_t axes = local_dims(spec, config, tp_size, local.data());
  const bool gated = spec.rule == TpRule::kGatedRows;
  if (gated) local[0] /= 2;
  if (spec.rule == TpRule::kColumns) start[1] = tp_rank * local[1];
  if (gated || spec.rule == TpRule::kRows || spec.rule == TpRule::kVocabRows) start[0] = tp_rank * local[0];
  if (spec.rule == TpRule::kVocabRows) {  // only the true rows
    local[0] = std::clamp<int64_t>(spec.global_shape[0] - start[0], 0, local[0]);
  }
  int64_t size = 1, part_begin = 0;
  for (size_t axis = 0; axis < axes; ++axis) size *= local[axis];
  for (int part = 0; part < (gated ? 2 : 1); ++part) {
    const int64_t from = std::clamp<int64_t>(begin - part_begin, 0, size);
    const int64_t to = std::clamp<int64_t>(end - part_begin, 0, size);
    if (from == 0 && to == size) {  // the whole part: the common case, without divisions
      if (size > 0) emit(start.data(), local.data());
    } else {
      for_each_piece_of_range({local.data(), axes}, from, to - from,
                              [&](const int64_t* at, const int64_t* extent, int64_t) {
                                for (size_t axis = 0; axis < axes; ++axis) offset[axis] = at[axis] + start[axis];
                                emit(offset.data(), extent);
                              });
    }
    part_begin += size;
    if (gated) start[0] += spec.global_shape[0] / 2;
  }
}

}  // namespace ms::layout
