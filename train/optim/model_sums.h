// Norms and counts over the whole model, from the parts of it that ranks hold: summed per tensor and then in the order
// of the model, so that they do not depend on how the pipeline is cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "core/layout/sharding.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

class ModelSums {
 public:
  // Each rank counts what it owns, as its replicas count the rest.
  ModelSums(RankState& state, const ParameterStore& parameters);

  // Collective; the same on all ranks. A shared or replicated weight counts once.
  // L2 norm of the values that `values` gives for the owned part of a parameter that trains.
  double norm(core::FunctionRef<std::span<const float>(layout::FlatRange)> values);
  // Elements of the gradients that are 0. Source: count_zeros_fp32 (megatron/core/optimizer/clip_grads.py).
  double zero_gradients();
  // L2 norm of the weights, those that do not train included, where master weights are not there to be read.
  double weights_norm();
  // The same with these values of those that train.
  double params_norm(core::FunctionRef<std::span<const float>(layout::FlatRange)> values);

 private:
  // Whether what all replicas hold counts here: on all of them, unless their sums are added up.
  bool counts_replicated(const Parameter& parameter) const;
  // Calls body(parameter, part) for each parameter that trains, counts in norms here, and has an owned part.
  void for_each_counted(core::FunctionRef<void(const Parameter&, layout::FlatRange)> body) const;
  // Begins anew sums_, of which a caller fills those of its own parameters; then adds up all, in the order of the
  // model. Collective.
  void clear_sums() { sums_.assign(parameters_.model().size(), 0.0); }
  double sum_over_model();
  void add_squares(core::FunctionRef<std::span<const float>(layout::FlatRange)> values);
  void add_frozen_squares();

  RankState& state_;
  const ParameterStore& parameters_;
  bool adds_replicas_;        // of the dense parameters: they count other elements, or hold other experts
  bool adds_instances_;       // of the optimizer, too; else each has all of the model
  std::vector<double> sums_;  // of each parameter of the model
  // Of the parameters that count here, for add_squares; kept, so that a step allocates nothing.
  std::vector<std::span<const float>> counted_;
  std::vector<double> squares_;
};

}  // namespace ms::train
