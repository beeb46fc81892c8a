// The output layer's weight gradient after the last backward, while the other stages still flush the pipeline.
// Source: Megatron's --defer-embedding-wgrad-compute (megatron/core/pipeline_parallel/schedules.py,
// finish_embedding_wgrad_compute).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct DeferEmbeddingWgradConfig {
  bool defer_embedding_wgrad_compute = false;
  int64_t wgrad_deferral_limit = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = DeferEmbeddingWgradConfig;
    field("defer_embedding_wgrad_compute", &C::defer_embedding_wgrad_compute,
          "Compute the output layer's weight gradients after the last backward of a step, while other stages are not "
          "done; costs the memory of a micro-batch's logits for each");
    field("wgrad_deferral_limit", &C::wgrad_deferral_limit,
          "With --defer-embedding-wgrad-compute: of how many micro-batches, the last ones; 0: of all");
  }
};

// Micro-batches of a step of num_microbatches whose gradient waits; 0: none.
int64_t deferred_output_gradients(const DeferEmbeddingWgradConfig& config, int64_t num_microbatches);

Feature defer_embedding_wgrad_feature();

}  // namespace ms::train
