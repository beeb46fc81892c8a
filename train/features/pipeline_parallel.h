// Pipeline parallelism with the 1F1B schedule: each of PP stages holds a run of consecutive layers.
// Source: arXiv 2104.04473; megatron/core/pipeline_parallel/schedules.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct PipelineParallelConfig {
  int pipeline_model_parallel_size = 1;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = PipelineParallelConfig;
    field("pipeline_model_parallel_size", &C::pipeline_model_parallel_size,
          "Pipeline stages that the layers are divided into (PP)");
  }
};

Feature pipeline_parallel_feature();

}  // namespace ms::train
