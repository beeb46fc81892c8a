#include "train/loop/evaluation.h"

#include <cmath>

#include "core/comm/agree.h"
#include "core/error.h"

namespace ms::train {

using core::cat;

std::optional<double> evaluation_loss(const TrainerConfig& config, StepRunner& runner, int64_t first,
                                      core::FunctionRef<const std::vector<Microbatch>&(int64_t, int64_t)> read,
                                      core::FunctionRef<bool()> goes_on) {
  const int64_t batch = config.eval_batch_size();
  double sum = 0;
  for (int64_t i = 0; i < config.training.eval_iters; ++i) {
    sum += runner.evaluate(read(first + i * batch, batch)).loss;
    if (!goes_on()) return std::nullopt;
  }
  return sum / static_cast<double>(config.training.eval_iters);
}

void require_finite_result(const TrainerConfig& config, core::Communicator& world, double loss, int64_t iteration) {
  if (!config.training.skip_train || !config.training.check_for_nan_in_loss_and_grad || std::isfinite(loss)) return;
  core::collectively(world, cat("evaluation at iteration ", iteration), [&] {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        cat("lm loss ", loss, ": not finite. The weights that were loaded are damaged, or overflow in ",
            core::dtype_name(config.params_dtype()), " (--no-check-for-nan-in-loss-and-grad: exit 0 all the same)"));
  });
}

}  // namespace ms::train
