#include "train/features/defer_embedding_wgrad.h"

#include <algorithm>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kFlag = "--defer-embedding-wgrad-compute";

bool is_given(const TrainerConfig& config) { return config.parallel.defer_embedding_wgrad_compute; }

}  // namespace

// Megatron defers the first ones. The last ones keep the order of the micro-batches, so that no bit changes, and are
// the ones that wait the least.
int64_t deferred_output_gradients(const DeferEmbeddingWgradConfig& config, int64_t num_microbatches) {
  if (!config.defer_embedding_wgrad_compute) return 0;
  return config.wgrad_deferral_limit > 0 ? std::min(config.wgrad_deferral_limit, num_microbatches) : num_microbatches;
}

Feature defer_embedding_wgrad_feature() {
  return {
      .name = "defer-embedding-wgrad",
      .level = 2,
      .effect = "Computes the output layer's weight gradients after the last backward, when the stage would be idle",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<DeferEmbeddingWgradConfig>("parallel", config.parallel); },
      .is_active = is_given,
      .rules = {needs(kFlag, is_given, "--pipeline-model-parallel-size above 1",
                      [](const TrainerConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; }),
                excludes(
                    kFlag, is_given, "--loss-chunk-size",
                    [](const TrainerConfig& c) { return c.training.loss_chunk_size > 0; },
                    ", which --loss-compute-mode chunk sets too: its gradients are computed in forward"),
                needs(
                    "--wgrad-deferral-limit",
                    [](const TrainerConfig& c) { return c.parallel.wgrad_deferral_limit != 0; }, kFlag, is_given)},
      .check =
          [](const TrainerConfig& c, int) {
            require(c.parallel.wgrad_deferral_limit >= 0, "--wgrad-deferral-limit ", c.parallel.wgrad_deferral_limit,
                    ": at least 0");
          },
  };
}

}  // namespace ms::train
