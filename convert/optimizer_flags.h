// Optimizer settings from the command line: values that a target needs and the source lacks, or that replace the
// source's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// Megatron's names and meanings. nullopt: as in the source.
struct OptimizerFlags {
  std::optional<double> lr, min_lr, weight_decay, adam_beta1, adam_beta2, adam_eps, lr_warmup_init;
  std::optional<std::string> lr_decay_style;  // constant, linear, cosine or inverse-square-root
  std::optional<int64_t> lr_decay_iters, lr_warmup_iters, global_batch_size;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = OptimizerFlags;
    field("lr", &C::lr, "Learning rate of the optimizer's groups; with a schedule, its maximum");
    field("min_lr", &C::min_lr, "Learning rate at the end of the schedule");
    field("lr_decay_style", &C::lr_decay_style,
          "Schedule after the warm-up: constant, linear, cosine or inverse-square-root");
    field("lr_decay_iters", &C::lr_decay_iters, "Iterations until --min-lr");
    field("lr_warmup_iters", &C::lr_warmup_iters, "Iterations of linear warm-up to --lr");
    field("lr_warmup_init", &C::lr_warmup_init, "Learning rate at the start of the warm-up");
    field("global_batch_size", &C::global_batch_size,
          "Samples per iteration, since schedules count samples; needed if the source lacks it");
    field("weight_decay", &C::weight_decay, "Weight decay of the parameter groups with weight decay");
    field("adam_beta1", &C::adam_beta1, "Adam's decay of the first moment");
    field("adam_beta2", &C::adam_beta2, "Adam's decay of the second moment");
    field("adam_eps", &C::adam_eps, "Adam's epsilon");
  }

  bool any() const;
  // Throws kInvalidArgument, naming the flag, for a value out of range.
  void validate() const;
};

// Returns the source with these settings in its info: in every group of its optimizer and in its schedule. A source
// without a schedule gets one if any of --min-lr, --lr-decay-*, --lr-warmup-* is given. Each flag that replaces a value
// is appended to `decisions` and to `from_flags` ("lr", ..). Without flags or without optimizer state returns the
// source itself. Throws kInvalidArgument for an incomplete schedule: without a rate, an end, or a batch size to count
// samples by.
std::unique_ptr<ckpt::Source> with_optimizer_flags(std::unique_ptr<ckpt::Source> source, const OptimizerFlags& flags,
                                                   std::vector<std::string>& decisions,
                                                   std::vector<std::string>& from_flags);

}  // namespace ms::convert
