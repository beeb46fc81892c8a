#include "train/features/automated_pipeline.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kFlags = "--automated-pipeline or --automated-pipeline-perf";
constexpr const char* kOneChunk = ": it chooses for 1F1B, with one chunk of layers a stage";
constexpr int64_t kMaxLayers = 1024;  // the search takes their square

bool gives_ratio(const TrainerConfig& config) { return config.parallel.save_memory_ratio.has_value(); }

bool has_virtual_stages(const TrainerConfig& config) {
  return config.parallel.num_layers_per_virtual_pipeline_stage.has_value() ||
         config.parallel.num_virtual_stages_per_pipeline_rank.has_value();
}

void check_automated_pipeline(const TrainerConfig& config, int) {
  const double ratio = config.parallel.save_memory_ratio.value_or(0);
  require(ratio >= 0 && ratio < 1, "--save-memory-ratio ", ratio, ": expected a share in [0, 1)");
  require(!chooses_pipeline(config) || config.model.num_layers <= kMaxLayers, kFlags, " with --num-layers ",
          config.model.num_layers, ": at most ", kMaxLayers);
}

}  // namespace

bool chooses_pipeline(const TrainerConfig& config) {
  return config.parallel.automated_pipeline || config.parallel.automated_pipeline_perf;
}

Feature automated_pipeline_feature() {
  const auto layers = [](const TrainerConfig& c) { return c.parallel.automated_pipeline; };
  const auto sizes = [](const TrainerConfig& c) { return c.parallel.automated_pipeline_perf; };
  return {
      .name = "automated-pipeline",
      .level = 2,
      .effect =
          "Measures the parts of the model when the run starts, and divides the layers so that a step is fastest in "
          "the memory that there is",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AutomatedPipelineConfig>("parallel", config.parallel); },
      .is_active = chooses_pipeline,
      .rules =
          {excludes("--automated-pipeline", layers, "--automated-pipeline-perf", sizes,
                    ", which chooses the layers too"),
           needs(kFlags, chooses_pipeline, "--pipeline-model-parallel-size above 1",
                 [](const TrainerConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; }),
           needs("--save-memory-ratio", gives_ratio, "--automated-pipeline", layers),
           excludes(kFlags, chooses_pipeline,
                    "--num-virtual-stages-per-pipeline-rank or --num-layers-per-virtual-pipeline-stage",
                    has_virtual_stages, kOneChunk),
           excludes(
               kFlags, chooses_pipeline, "--schedules-method",
               [](const TrainerConfig& c) { return !c.parallel.schedules_method.empty(); }, kOneChunk),
           excludes(
               kFlags, chooses_pipeline, "--defer-embedding-wgrad-compute",
               [](const TrainerConfig& c) { return c.parallel.defer_embedding_wgrad_compute; },
               ", after which the last stage's work is no longer between those of the others"),
           excludes(
               kFlags, chooses_pipeline, "--recompute-granularity full",
               [](const TrainerConfig& c) { return c.training.recompute_granularity == "full"; },
               ": it chooses --recompute-module-list"),
           excludes(
               kFlags, chooses_pipeline, "--recompute-num-layers",
               [](const TrainerConfig& c) { return c.training.recompute_num_layers != 0; },
               ": it chooses --recompute-module-list"),
           excludes(
               kFlags, chooses_pipeline, "--recompute-module-list",
               [](const TrainerConfig& c) { return !c.training.recompute_module_list.empty(); }, ", which it chooses"),
           excludes(
               kFlags, chooses_pipeline, "--non-persistent-ckpt-type local",
               [](const TrainerConfig& c) { return c.checkpoint.non_persistent_ckpt_type == "local"; },
               ": local checkpoints fit only the layers that wrote them, and another start may measure others. Give "
               "the --num-layer-list that a run has logged")},
      .check = check_automated_pipeline,
  };
}

}  // namespace ms::train
