// Logits and their loss for a part of the sequence at a time. Source: MindSpeed-LLM's --loss-compute-mode chunk.
#pragma once

#include <cstdint>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct LossChunksConfig {
  std::string loss_compute_mode = "default";
  int64_t loss_chunk_size = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = LossChunksConfig;
    field("loss_compute_mode", &C::loss_compute_mode,
          "default: logits of the whole sequence; chunk: of --loss-chunk-size positions at a time");
    field("loss_chunk_size", &C::loss_chunk_size,
          "Positions whose logits exist at the same time; saves memory with large vocabularies; 0: all (1024 with "
          "--loss-compute-mode chunk)");
  }
};

Feature loss_chunks_feature();

}  // namespace ms::train
