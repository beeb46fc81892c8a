// What tensor parallelism communicates while it computes: sums of gradients beside the gradients of weights
// (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication), and products in parts, of
// which one is computed while another is on its way (MindSpeed's CoC and MC2).
#pragma once

#include <cstdint>

namespace ms::layout {

struct TensorOverlap {
  static constexpr int kAutomatic = 0;

  bool backward = false;
  int parts = 1;  // of a product, at most; kAutomatic: as many as stay large

  // Parts of products whose rows are the positions of a sequence. own_positions: of the part of it that each rank has
  // with sequence parallelism, else all; batch: sequences.
  int64_t product_parts(int64_t own_positions, int64_t batch) const;
  // With sequence parallelism, in the backward of a row-parallel layer: whether a rank multiplies its own rows while
  // the others' are gathered.
  bool multiplies_own_first(int64_t own_positions, int64_t batch) const;
};

}  // namespace ms::layout
