// Tensor parallelism: the matrices of a layer are cut over TP ranks, column-parallel and row-parallel in turn.
// Source: Megatron-LM (arXiv 1909.08053); megatron/core/tensor_parallel/layers.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct TensorParallelConfig {
  int tensor_model_parallel_size = 1;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = TensorParallelConfig;
    field("tensor_model_parallel_size", &C::tensor_model_parallel_size,
          "Ranks that share each layer (TP); choose ranks of one node");
  }
};

Feature tensor_parallel_feature();

}  // namespace ms::train
