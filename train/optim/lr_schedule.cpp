#include "train/optim/lr_schedule.h"

#include <cmath>
#include <numbers>

namespace ms::train {

double learning_rate(const OptimizerConfig& optimizer, const SchedulerConfig& scheduler, int64_t completed) {
  const auto step = static_cast<double>(completed);
  const auto warmup = static_cast<double>(scheduler.lr_warmup_iters);
  if (warmup > 0 && step <= warmup) {
    return scheduler.lr_warmup_init + (optimizer.lr - scheduler.lr_warmup_init) * step / warmup;
  }
  if (scheduler.lr_decay_style == "constant") return optimizer.lr;
  if (completed > scheduler.lr_decay_iters) return optimizer.min_lr;
  const double ratio = (step - warmup) / (static_cast<double>(scheduler.lr_decay_iters) - warmup);
  const double share =
      scheduler.lr_decay_style == "linear" ? 1.0 - ratio : 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0);
  return optimizer.min_lr + share * (optimizer.lr - optimizer.min_lr);
}

}  // namespace ms::train
