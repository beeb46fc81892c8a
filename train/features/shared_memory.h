// Weights and gradients that the data-parallel ranks of one machine read and write in each other's memory
// (core/comm/detail/direct.h), instead of sending them as messages.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct SharedMemoryConfig {
  bool shared_memory = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field(
        "shared_memory", &SharedMemoryConfig::shared_memory,
        "Data-parallel ranks of one machine reduce gradients and gather weights in each other's memory, and "
        "tensor-parallel ranks add up activations there, without messages; changes no bit. Off: by messages alone, as "
        "between machines");
  }
};

Feature shared_memory_feature();

}  // namespace ms::train
