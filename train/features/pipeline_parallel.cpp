#include "train/features/pipeline_parallel.h"

#include "train/config.h"

namespace ms::train {

Feature pipeline_parallel_feature() {
  return {
      .name = "pipeline-parallel",
      .level = 0,
      .effect =
          "Divides the layers over PP stages that work on different micro-batches; of m micro-batches' time, "
          "(PP - 1) / m is added as idle time",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PipelineParallelConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; },
  };
}

}  // namespace ms::train
