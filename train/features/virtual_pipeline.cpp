#include "train/features/virtual_pipeline.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void check_chunks(const char* flag, const std::optional<int64_t>& value, int64_t num_layers) {
  require(!value || (*value > 0 && *value <= num_layers), flag, " ", value.value_or(0), ": expected 1 to --num-layers ",
          num_layers);
}

}  // namespace

bool is_interleaved(const TrainerConfig& config) {
  return config.virtual_pipeline_model_parallel_size() > 1 &&
         !layout::runs_in_a_v(schedule_settings(config.parallel).method);
}

Feature virtual_pipeline_feature() {
  return {
      .name = "virtual-pipeline",
      .level = 0,
      .effect = "Gives each stage several chunks of layers: idle time shrinks by their number, messages grow by it",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<VirtualPipelineConfig>("parallel", config.parallel); },
      .is_active = is_interleaved,
      .rules = {excludes(
          "--num-layers-per-virtual-pipeline-stage",
          [](const TrainerConfig& c) { return c.parallel.num_layers_per_virtual_pipeline_stage.has_value(); },
          "--num-virtual-stages-per-pipeline-rank",
          [](const TrainerConfig& c) { return c.parallel.num_virtual_stages_per_pipeline_rank.has_value(); })},
      .check =
          [](const TrainerConfig& c, int) {
            check_chunks("--num-layers-per-virtual-pipeline-stage", c.parallel.num_layers_per_virtual_pipeline_stage,
                         c.model.num_layers);
            check_chunks("--num-virtual-stages-per-pipeline-rank", c.parallel.num_virtual_stages_per_pipeline_rank,
                         c.model.num_layers);
          },
  };
}

}  // namespace ms::train
