#include "train/features/pipeline_schedule.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kDetach = "--dualpipev-dw-detach";

constexpr const char* kNanoPipe = "--use-nanopipe";
constexpr const char* kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";

bool is_given(const TrainerConfig& config) { return !config.parallel.schedules_method.empty(); }
bool uses_nanopipe(const TrainerConfig& config) { return config.parallel.use_nanopipe; }
bool gives_group(const TrainerConfig& config) {
  return config.parallel.microbatch_group_size_per_virtual_pipeline_stage.has_value();
}
bool has_chunks(const TrainerConfig& config) { return config.virtual_pipeline_model_parallel_size() > 1; }
bool is_dualpipev(const TrainerConfig& config) { return config.parallel.schedules_method == "dualpipev"; }
bool delays_weights(const TrainerConfig& config) { return config.parallel.delay_wgrad_compute; }
bool gives_layers_per_chunk(const TrainerConfig& config) {
  return config.parallel.num_layers_per_virtual_pipeline_stage.has_value();
}
bool gives_chunks(const TrainerConfig& config) {
  return config.parallel.num_virtual_stages_per_pipeline_rank.has_value();
}

void check_schedule_method(const TrainerConfig& config, int) {
  require_one_of("--schedules-method", config.parallel.schedules_method, {"", "zb-h1", "zb-v", "dualpipev"});
  const layout::ScheduleMethod method = schedule_settings(config.parallel).method;
  const int pp = config.parallel.pipeline_model_parallel_size, chunks = config.virtual_pipeline_model_parallel_size();
  const int needed = layout::runs_in_a_v(method) ? 2 : 1;
  require(!is_given(config) || chunks == needed, "--schedules-method ", config.parallel.schedules_method, " needs ",
          needed * pp, " stages in --pipeline-model-parallel-layout ", config.parallel.pipeline_model_parallel_layout);
  require(!layout::runs_in_a_v(method) || !layer_list(config).empty() || config.model.num_layers % (2 * pp) == 0,
          "--schedules-method ", config.parallel.schedules_method, ": --num-layers ", config.model.num_layers,
          " is not a multiple of twice --pipeline-model-parallel-size ", pp,
          ", for two chunks a stage; --num-layer-list gives them others");
  const int64_t group = config.parallel.microbatch_group_size_per_virtual_pipeline_stage.value_or(pp);
  require(group >= pp, kGroup, " ", group, ": at least --pipeline-model-parallel-size ", pp);
}

}  // namespace

bool interleaves_pairs(const TrainerConfig& config) {
  if (dispatches_tokens(config)) return interleaves_exchanges(config);
  return is_dualpipev(config) && config.parallel.tensor_model_parallel_size > 1;
}

layout::ScheduleSettings schedule_settings(const PipelineScheduleConfig& config) {
  const int64_t group = config.microbatch_group_size_per_virtual_pipeline_stage.value_or(0);
  if (config.use_nanopipe) return {layout::ScheduleMethod::kNanoPipe, group};
  if (config.schedules_method == "zb-h1") return {layout::ScheduleMethod::kZbH1};
  if (config.schedules_method == "zb-v") return {layout::ScheduleMethod::kZbV};
  if (config.schedules_method != "dualpipev") return {layout::ScheduleMethod::k1F1B, group};
  return {config.dualpipev_dw_detach ? layout::ScheduleMethod::kDualPipeVDetach : layout::ScheduleMethod::kDualPipeV};
}

Feature pipeline_schedule_feature() {
  const char* why = ": its stages have one chunk, or two in a V";
  const char* chunks = "virtual stages, such as --num-virtual-stages-per-pipeline-rank 2";
  return {
      .name = "pipeline-schedule",
      .level = 2,
      .effect =
          "Runs the pipeline in another order than 1F1B, with less idle time: backwards in two parts, of which "
          "nothing waits for the gradients of weights, or two chunks a stage in a V",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PipelineScheduleConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return is_given(c) || uses_nanopipe(c) || gives_group(c); },
      .rules = {needs("--schedules-method", is_given, "--pipeline-model-parallel-size above 1",
                      [](const TrainerConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; }),
                excludes("--schedules-method", is_given, "--num-layers-per-virtual-pipeline-stage",
                         gives_layers_per_chunk, why),
                excludes("--schedules-method", is_given, "--num-virtual-stages-per-pipeline-rank", gives_chunks, why),
                needs(
                    kDetach, [](const TrainerConfig& c) { return c.parallel.dualpipev_dw_detach; },
                    "--schedules-method dualpipev", is_dualpipev),
                needs("--delay-wgrad-compute", delays_weights,
                      "--moe-fb-overlap, or --schedules-method dualpipev and --tensor-model-parallel-size above 1",
                      interleaves_pairs,
                      ": it is for the backwards that these interleave with forwards, the first where experts are on "
                      "several ranks"),
                excludes(kNanoPipe, uses_nanopipe, "--schedules-method", is_given),
                needs(kNanoPipe, uses_nanopipe, chunks, has_chunks),
                needs(
                    "--use-nanopipe-swap", [](const TrainerConfig& c) { return c.parallel.use_nanopipe_swap; },
                    kNanoPipe, uses_nanopipe),
                excludes(kGroup, gives_group, "--schedules-method", is_given),
                needs(kGroup, gives_group, chunks, has_chunks)},
      .check = check_schedule_method,
  };
}

}  // namespace ms::train
