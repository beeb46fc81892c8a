// CheckpointManager that link what has not changed since the save before.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct IncrementalSaveConfig {
  int64_t ckpt_full_every = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = IncrementalSaveConfig;
    field("ckpt_full_every", &C::ckpt_full_every,
          "Incremental saves: unchanged parts are links to the previous save, every Nth save writes everything; 0: "
          "every save does");
  }
};

Feature incremental_save_feature();

}  // namespace ms::train
