#include "train/features/tensor_parallel.h"

#include "train/config.h"

namespace ms::train {

Feature tensor_parallel_feature() {
  return {
      .name = "tensor-parallel",
      .level = 0,
      .effect =
          "Divides each layer's matrices over TP ranks: weights, gradients and products shrink by TP, for two "
          "all-reduces a layer in each direction",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<TensorParallelConfig>("parallel", config.parallel);
            fields.alias("model-parallel-size", "tensor_model_parallel_size");
          },
      .is_active = [](const TrainerConfig& c) { return c.parallel.tensor_model_parallel_size > 1; },
  };
}

}  // namespace ms::train
