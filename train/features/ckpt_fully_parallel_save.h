// Who writes state that data-parallel ranks hold alike. Source: Megatron's --ckpt-fully-parallel-save
// (megatron/core/dist_checkpointing/strategies/fully_parallel.py).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct CkptFullyParallelSaveConfig {
  bool ckpt_fully_parallel_save = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = CkptFullyParallelSaveConfig;
    field("ckpt_fully_parallel_save", &C::ckpt_fully_parallel_save,
          "Each data-parallel rank writes a share of the state they hold alike; off: the first rank writes it");
  }
};

Feature ckpt_fully_parallel_save_feature();

}  // namespace ms::train
