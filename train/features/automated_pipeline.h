// The layers of each stage, which of them are recomputed, and the micro-batch size, chosen from measured times when a
// run starts (train/loop/automated_pipeline.h). Source: MindSpeed's --automated-pipeline and --automated-pipeline-perf.
#pragma once

#include <optional>

#include "train/features/feature.h"

namespace ms::train {

struct AutomatedPipelineConfig {
  bool automated_pipeline = false;
  bool automated_pipeline_perf = false;
  std::optional<double> save_memory_ratio;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AutomatedPipelineConfig;
    field(
        "automated_pipeline", &C::automated_pipeline,
        "Measure the parts of the model when the run starts, and give each pipeline stage the layers with which a step "
        "is fastest; recompute as many of them as memory requires. The log has the flags that do the same");
    field(
        "automated_pipeline_perf", &C::automated_pipeline_perf,
        "As --automated-pipeline, and choose --micro-batch-size too. Use it where the pipeline's idle time is long, or "
        "small micro-batches are slow");
    field(
        "save_memory_ratio", &C::save_memory_ratio,
        "With --automated-pipeline: make the peak memory of every rank smaller than that of even stages by this share, "
        "0 to below 1. Default: what this machine's memory allows");
  }
};

// Whether a run has to choose.
bool chooses_pipeline(const TrainerConfig& config);

Feature automated_pipeline_feature();

}  // namespace ms::train
