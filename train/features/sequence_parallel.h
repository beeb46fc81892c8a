// Sequence parallelism: between the layers' products, each TP rank holds its part of the sequence.
// Source: arXiv 2205.05198; megatron/core/tensor_parallel/mappings.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct SequenceParallelConfig {
  bool sequence_parallel = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SequenceParallelConfig;
    field("sequence_parallel", &C::sequence_parallel,
          "Each TP rank holds 1/TP of the sequence in norms and residuals; saves activation memory, for TP above 1");
  }
};

Feature sequence_parallel_feature();

}  // namespace ms::train
