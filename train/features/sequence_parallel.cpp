#include "train/features/sequence_parallel.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature sequence_parallel_feature() {
  return {
      .name = "sequence-parallel",
      .level = 0,
      .effect =
          "Divides norms, residuals and dropout over the TP ranks by sequence: less activation memory for the same "
          "bytes on the wire",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SequenceParallelConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.sequence_parallel; },
      .ineffective =
          {{[](const TrainerConfig& c) {
              return c.parallel.sequence_parallel && c.parallel.tensor_model_parallel_size == 1;
            },
            "--sequence-parallel has no effect with --tensor-model-parallel-size 1: there is nobody to share "
            "a sequence with"}},
      .resolve =
          [](TrainerConfig& c) {
            if (c.parallel.tensor_model_parallel_size == 1) c.parallel.sequence_parallel = false;  // as Megatron
          },
      .check =
          [](const TrainerConfig& c, int) {
            const int tp = c.parallel.tensor_model_parallel_size;
            const int cp = c.parallel.context_parallel_size;
            require(!c.parallel.sequence_parallel || c.training.seq_length % (int64_t{tp} * cp) == 0,
                    "--sequence-parallel: --seq-length ", c.training.seq_length,
                    " is not a multiple of --tensor-model-parallel-size ", tp,
                    cp > 1 ? core::cat(" x --context-parallel-size ", cp) : "");
          },
  };
}

}  // namespace ms::train
