#include "train/features/save_tensors.h"

#include <algorithm>
#include <filesystem>

#include "core/expression.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kFlags = "--save-tensors (or an interval of tensors)";

bool saves_any(const TrainerConfig& config) {
  const SaveTensorsConfig& c = config.logger;
  return !c.save_tensors.empty() || c.save_activations_interval > 0 || c.save_dgrads_interval > 0 ||
         c.save_wgrads_interval > 0;
}

void check_save_tensors(const TrainerConfig& config, int) {
  const SaveTensorsConfig& c = config.logger;
  for (const int64_t iteration : c.save_tensors)
    require(iteration > 0, "--save-tensors ", iteration, ": the first iteration is 1");
  const int64_t last = config.training.train_iters;
  require(c.save_tensors.empty() || last <= 0 || std::ranges::min(c.save_tensors) <= last, "--save-tensors ",
          c.save_tensors.empty() ? 0 : c.save_tensors.front(), ": --train-iters is ", last);
  for (const auto& [interval, flag] : {std::pair{c.save_activations_interval, "--save-activations-interval"},
                                       std::pair{c.save_dgrads_interval, "--save-dgrads-interval"},
                                       std::pair{c.save_wgrads_interval, "--save-wgrads-interval"}})
    require(interval >= 0, flag, " ", interval, ": at least 1 iteration, or 0 for none");
  require(c.save_tensors_perturbation >= 0 && c.save_tensors_perturbation < 1, "--save-tensors-perturbation ",
          c.save_tensors_perturbation, ": expected 0 to below 1");
  for (const auto& [folder, flag] :
       {std::pair{config.checkpoint.save, "--save"}, std::pair{config.checkpoint.load, "--load"},
        std::pair{config.checkpoint.non_persistent_local_ckpt_dir, "--non-persistent-local-ckpt-dir"}}) {
    require(c.save_tensors_dir.empty() || folder.empty() ||
                std::filesystem::weakly_canonical(folder) != std::filesystem::weakly_canonical(c.save_tensors_dir),
            "--save-tensors-dir and ", flag, " are one folder, ", folder, ": name another one");
  }
  core::user_expression(c.save_tensors_filter, /*ignore_case=*/false, core::ErrorCode::kInvalidArgument,
                        "--save-tensors-filter");
}

}  // namespace

SavedTensorKinds saved_tensor_kinds(const SaveTensorsConfig& config, int64_t iteration) {
  const bool all = std::ranges::find(config.save_tensors, iteration) != config.save_tensors.end();
  const auto is_due = [&](int64_t interval) { return all || (interval > 0 && iteration % interval == 0); };
  return {.outputs = is_due(config.save_activations_interval),
          .output_gradients = is_due(config.save_dgrads_interval),
          .weight_gradients = is_due(config.save_wgrads_interval)};
}

Feature save_tensors_feature() {
  return {
      .name = "save-tensors",
      .level = 0,
      .effect =
          "Writes what modules compute in chosen iterations, by name and in whole tensors, to find the module in which "
          "two layouts begin to differ",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SaveTensorsConfig>("logger", config.logger); },
      .is_active = saves_any,
      .rules = {needs(kFlags, saves_any, "--save-tensors-dir",
                      [](const TrainerConfig& c) { return !c.logger.save_tensors_dir.empty(); }),
                needs(
                    "--save-tensors-dir", [](const TrainerConfig& c) { return !c.logger.save_tensors_dir.empty(); },
                    kFlags, saves_any),
                needs(
                    "--save-tensors-filter",
                    [](const TrainerConfig& c) { return !c.logger.save_tensors_filter.empty(); }, kFlags, saves_any),
                needs(
                    "--save-tensors-perturbation",
                    [](const TrainerConfig& c) { return c.logger.save_tensors_perturbation != 0; }, kFlags, saves_any),
                excludes(kFlags, saves_any, "--skip-train",
                         [](const TrainerConfig& c) { return c.training.skip_train; }),
                excludes(
                    kFlags, saves_any, "--variable-seq-lengths",
                    [](const TrainerConfig& c) { return c.parallel.variable_seq_lengths; },
                    ": a tensor has as many positions in all samples"),
                excludes(
                    kFlags, saves_any, "--hybrid-context-parallel",
                    [](const TrainerConfig& c) { return c.parallel.hybrid_context_parallel; },
                    ": samples of a micro-batch lie one behind the other in a tensor")},
      .check = check_save_tensors,
  };
}

}  // namespace ms::train
