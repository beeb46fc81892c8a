#include "train/features/multi_token_prediction.h"

#include <cmath>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kMtp = "--mtp-num-layers";

bool predicts_more_tokens(const TrainerConfig& config) { return config.model.mtp_num_layers > 0; }

bool saves_tensors(const TrainerConfig& config) {
  const SaveTensorsConfig& c = config.logger;
  return !c.save_tensors.empty() || c.save_activations_interval > 0 || c.save_dgrads_interval > 0 ||
         c.save_wgrads_interval > 0;
}

std::vector<Rule> rules_of_mtp() {
  using C = const TrainerConfig&;
  return {
      // As Megatron (megatron/training/arguments.py): positions would move with the tokens.
      excludes(kMtp, predicts_more_tokens, "--position-embedding-type learned_absolute",
               [](C c) { return c.model.has_learned_positions(); }),
      excludes(
          kMtp, predicts_more_tokens, "--defer-embedding-wgrad-compute",
          [](C c) { return c.parallel.defer_embedding_wgrad_compute; },
          ": the output layer's gradients of these layers do not wait"),
      excludes(
          kMtp, predicts_more_tokens, "--automated-pipeline",
          [](C c) { return c.parallel.automated_pipeline || c.parallel.automated_pipeline_perf; },
          ": the time of these layers is not measured yet"),
      excludes(kMtp, predicts_more_tokens, "--save-tensors (or an interval of tensors)", saves_tensors,
               ": tensors of these layers are not written yet"),
  };
}

void check_mtp(const TrainerConfig& config, int) {
  const double factor = config.training.mtp_loss_scaling_factor;
  require(std::isfinite(factor) && factor >= 0, "--mtp-loss-scaling-factor ", factor, ": at least 0");
  const int64_t layers = config.model.mtp_num_layers, positions = config.training.seq_length;
  require(layers == 0 || positions > layers, kMtp, " ", layers, ": --seq-length ", positions,
          " has no token so far behind another; expected at least ", layers + 1);
}

}  // namespace

Feature multi_token_prediction_feature() {
  using C = const TrainerConfig&;
  return {
      .name = "multi-token-prediction",
      .level = 0,
      .effect =
          "Trains layers behind the model's, each to predict one token further, with its embedding and output layer",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<MultiTokenPredictionConfig>("training", config.training); },
      .is_active = predicts_more_tokens,
      .rules = rules_of_mtp(),
      .ineffective = {{[](C c) { return !predicts_more_tokens(c) && c.training.mtp_loss_scaling_factor != 0.1; },
                       "--mtp-loss-scaling-factor has no effect without --mtp-num-layers"},
                      {[](C c) { return !predicts_more_tokens(c) && c.training.mtp_mem_efficient_logits; },
                       "--mtp-mem-efficient-logits has no effect without --mtp-num-layers"}},
      .check = check_mtp,
  };
}

}  // namespace ms::train
