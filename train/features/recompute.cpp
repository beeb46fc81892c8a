#include "train/features/recompute.h"

#include <algorithm>

#include "core/layout/model_layout.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

bool is_selective(const TrainerConfig& config) { return config.training.recompute_granularity == "selective"; }

// Attention keeps no probabilities here, which is what Megatron's core_attn drops.
bool recomputes_only_core_attention(const RecomputeConfig& recompute) {
  return std::ranges::all_of(recompute.recompute_modules, [](const std::string& m) { return m == "core_attn"; });
}

bool counts_by_stage(const TrainerConfig& config) { return config.training.enable_recompute_layers_per_pp_rank; }

layout::Placement places_of(const TrainerConfig& config) {
  return layout::placement_of(config.model, config.layout(config.parallel.tensor_model_parallel_size *
                                                          config.parallel.pipeline_model_parallel_size));
}

bool is_full(const TrainerConfig& config) { return config.training.recompute_granularity == "full"; }
bool gives_module_list(const TrainerConfig& config) { return !config.training.recompute_module_list.empty(); }

void check_module_list(const TrainerConfig& config) {
  const std::vector<int64_t>& list = config.training.recompute_module_list;
  const int64_t type = config.training.recompute_type;
  if (type == 1) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      "--recompute-type 1: attention alone is not recomputed; say 2 (whole layers) or 0 (MLPs)");
  }
  require(type == 0 || type == 2, "--recompute-type ", type, ": expected 2 (whole layers) or 0 (MLPs)");
  if (list.empty()) return;
  const int pp = config.parallel.pipeline_model_parallel_size;
  require(list.size() == static_cast<size_t>(pp), "--recompute-module-list has ", list.size(), " entries, expected ",
          pp, ": one for each stage of --pipeline-model-parallel-size");
  for (const int64_t layers : list)
    require(layers >= 0, "--recompute-module-list: ", layers, " layers of a stage; at least 0");
}

void check_recompute(const TrainerConfig& config, int) {
  check_module_list(config);
  const RecomputeConfig& recompute = config.training;
  require_one_of("--recompute-granularity", recompute.recompute_granularity, {"", "full", "selective"});
  const bool full = recompute.recompute_granularity == "full";
  require(full != recompute.recompute_method.empty(),
          "--recompute-granularity full and --recompute-method (uniform or block) go together");
  require(!full || ((recompute.recompute_method == "uniform" || recompute.recompute_method == "block") &&
                    recompute.recompute_num_layers > 0),
          "--recompute-method ", recompute.recompute_method,
          ": expected uniform or block, with --recompute-num-layers above 0");
  for (const std::string& module : recompute.recompute_modules)
    require_one_of("--recompute-modules", module,
                   {"core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"});
}

std::vector<std::string> notices_of_recompute(const TrainerConfig& config) {
  const RecomputeConfig& recompute = config.training;
  std::vector<std::string> notices = notice_of_layers(config, "--recompute-num-layers", recompute.recompute_num_layers);
  const std::vector<int64_t>& list = recompute.recompute_module_list;
  if (list.empty()) return notices;
  const layout::Placement places = places_of(config);
  for (size_t stage = 0; stage < list.size(); ++stage) {
    const int64_t own = places.layers({static_cast<int>(stage), 0}).count;
    if (list[stage] <= own) continue;
    notices.push_back(core::cat("--recompute-module-list: ", list[stage], " for stage ", stage, ", which has ", own,
                                " layers: taken as ", own));
  }
  return notices;
}

}  // namespace

std::vector<std::string> notice_of_layers(const TrainerConfig& config, const char* flag, int64_t layers) {
  const layout::Placement places = places_of(config);
  const bool by_stage = counts_by_stage(config) || places.chunks() == 1;
  int64_t most = 0;
  for (int stage = 0; stage < places.stages(); ++stage) {
    int64_t of_stage = 0;
    for (int chunk = 0; chunk < places.chunks(); ++chunk) {
      const int64_t of_chunk = places.layers({stage, chunk}).count;
      of_stage += of_chunk;
      most = std::max(most, by_stage ? of_stage : of_chunk);
    }
  }
  if (layers <= most) return {};
  return {core::cat(flag, " ", layers, ": no ", by_stage ? "stage" : "chunk of a stage", " has more than ",
                    core::counted(most, "layer"), ": taken as ", most, ", as Megatron does")};
}

Feature recompute_feature() {
  return {
      .name = "recompute",
      .level = 0,
      .effect = "Drops the activations of whole layers, or of chosen modules, and computes them again in backward",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<RecomputeConfig>("training", config.training);
            fields.stand_for("recompute-activations", {"--recompute-granularity", "selective"});
            fields.stand_for("checkpoint-activations", {"--recompute-granularity", "full", "--recompute-method",
                                                        "uniform", "--recompute-num-layers", "1"});
          },
      .is_active =
          [](const TrainerConfig& c) {
            return is_full(c) || c.training.recompute_num_layers > 0 ||
                   std::ranges::any_of(c.training.recompute_module_list, [](int64_t layers) { return layers > 0; }) ||
                   (is_selective(c) && !recomputes_only_core_attention(c.training));
          },
      .rules = {needs(
                    "--recompute-modules", [](const TrainerConfig& c) { return !c.training.recompute_modules.empty(); },
                    "--recompute-granularity selective", is_selective),
                needs(
                    "--recompute-num-layers",
                    [](const TrainerConfig& c) { return c.training.recompute_num_layers != 0; },
                    "--recompute-granularity full or --swap-attention",
                    [](const TrainerConfig& c) {
                      return c.training.recompute_granularity == "full" || c.training.swap_attention;
                    }),
                needs(
                    "--recompute-type", [](const TrainerConfig& c) { return c.training.recompute_type != 2; },
                    "--recompute-module-list", gives_module_list),
                excludes("--recompute-module-list", gives_module_list, "--recompute-granularity full", is_full,
                         ", which says it for every stage"),
                excludes(
                    "--recompute-module-list", gives_module_list, "--recompute-num-layers",
                    [](const TrainerConfig& c) { return c.training.recompute_num_layers != 0; },
                    ", which says it for every stage"),
                excludes(
                    "--recompute-module-list", gives_module_list, "several chunks of layers a stage",
                    [](const TrainerConfig& c) { return c.virtual_pipeline_model_parallel_size() > 1; },
                    " (virtual stages, or a V)"),
                excludes(
                    "--enable-recompute-layers-per-pp-rank", counts_by_stage, "--recompute-method uniform",
                    [](const TrainerConfig& c) { return c.training.recompute_method == "uniform"; },
                    ", whose number is of a group")},
      .ineffective =
          {{[](const TrainerConfig& c) { return is_selective(c) && recomputes_only_core_attention(c.training); },
            "--recompute-granularity selective has no effect with --recompute-modules core_attn, its default as in "
            "Megatron: attention keeps no probabilities here. Add mlp or layernorm to --recompute-modules to "
            "save memory"},
           {[](const TrainerConfig& c) {
              return counts_by_stage(c) && !c.parallel.num_layers_per_virtual_pipeline_stage &&
                     !c.parallel.num_virtual_stages_per_pipeline_rank;
            },
            "--enable-recompute-layers-per-pp-rank has no effect without virtual stages: a stage has one chunk"}},
      .check = check_recompute,
      .notices = notices_of_recompute,
  };
}

}  // namespace ms::train
