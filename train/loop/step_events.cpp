#include "train/loop/step_events.h"

#include <cmath>

namespace ms::train {

void write_step_events(EventWriter& events, const TrainerConfig& config, const StepMetrics& step, const RunFacts& run) {
  if (!events.active()) return;
  const LoggerConfig& log = config.logger;
  const auto add = [&](bool wanted, const char* tag, double value) {
    if (wanted) events.add_scalar(tag, value, step.iteration, step.consumed_train_samples);
  };
  const auto add_plain = [&](bool wanted, const char* tag, double value) {
    if (wanted) events.add_scalar(tag, value, step.iteration);
  };
  add(log.log_learning_rate_to_tensorboard, "learning-rate", step.learning_rate);
  add_plain(log.log_learning_rate_to_tensorboard && step.decoupled_learning_rate, "decoupled-learning-rate",
            step.decoupled_learning_rate.value_or(0));
  add(log.log_batch_size_to_tensorboard, "batch-size", static_cast<double>(step.global_batch_size));
  add(std::isfinite(step.loss), "lm loss", step.loss);
  for (size_t k = 0; k < step.mtp_losses.size(); ++k)
    add(true, core::cat("mtp_", k + 1, " loss").c_str(), step.mtp_losses[k]);
  for_each_loss(mean_losses(step.experts), [&](const char* name, double value) { add(true, name, value); });
  if (!step.experts.empty()) add_plain(true, "busiest-expert", busiest_expert(step.experts).share);
  add(log.log_loss_scale_to_tensorboard, "loss-scale", step.loss_scale);
  add(log.log_world_size_to_tensorboard, "world-size", run.world_size);
  add(std::isfinite(step.grad_norm), "grad-norm", step.grad_norm);
  add(std::isfinite(step.num_zeros), "num-zeros", step.num_zeros);
  add(std::isfinite(step.params_norm), "params-norm", step.params_norm);
  add_plain(run.skipped_train_samples > 0, "skipped-train-samples", static_cast<double>(run.skipped_train_samples));
  add_plain(log.log_timers_to_tensorboard, "iteration-time", step.seconds);
  add_plain(log.log_timers_to_tensorboard && log.log_throughput && !step.passed_over, "throughput",
            step.tflops_per_rank);
  add_plain(log.log_memory_to_tensorboard, "mem-allocated-bytes", static_cast<double>(run.allocated_bytes));
  add_plain(log.log_memory_to_tensorboard, "mem-max-allocated-bytes", static_cast<double>(step.total_peak_bytes));
}

}  // namespace ms::train
