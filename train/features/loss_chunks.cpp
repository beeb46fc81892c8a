#include "train/features/loss_chunks.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature loss_chunks_feature() {
  return {
      .name = "loss-chunks",
      .level = 2,
      .effect =
          "Computes the logits of --loss-chunk-size positions at a time, and their loss and gradients: memory for "
          "these positions only",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<LossChunksConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.loss_chunk_size > 0; },
      .resolve =
          [](TrainerConfig& c) {
            if (c.training.loss_compute_mode == "chunk" && c.training.loss_chunk_size == 0)
              c.training.loss_chunk_size = 1024;
            if (c.training.loss_chunk_size > 0) c.training.loss_compute_mode = "chunk";
          },
      .check =
          [](const TrainerConfig& c, int) {
            require_one_of("--loss-compute-mode", c.training.loss_compute_mode, {"default", "chunk"});
            require(c.training.loss_chunk_size >= 0, "--loss-chunk-size ", c.training.loss_chunk_size,
                    ": at least 1 position");
          },
  };
}

}  // namespace ms::train
