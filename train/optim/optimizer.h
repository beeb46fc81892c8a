// AdamW over a rank's flat buffers, with or without the distributed optimizer (ZeRO-1;
// megatron/core/optimizer/distrib_optimizer.py).
//
// A step completes the gradients (tied embedding, partial gradients of norms, data parallelism), computes their global
// norm, and updates the owned range. Without ZeRO-1 every data-parallel rank owns the whole buffer. With it, rank r
// owns block r: gradients are reduce-scattered, weights all-gathered.
//
// The norm is summed per tensor and then in the order of the model, so that it does not depend on how the pipeline is
// cut.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/function_ref.h"
#include "train/model/parameters.h"
#include "train/ops/optimizer.h"
#include "train/rank_state.h"

namespace ms::train {

class Optimizer {
 public:
  Optimizer(RankState& state, ParameterStore& parameters);

  // Makes the gradients whole. main_grad of every parameter must be final for this rank's micro-batches; afterwards
  // only update() has a use for it. Returns the global norm of grad_scale x gradients, the same on all ranks; not
  // finite if a gradient is not.
  double finish_gradients(double grad_scale);

  // Between finish_gradients() and update(): elements of the gradients that are 0, of the whole model. A shared or
  // replicated weight counts once. Collective. Source: count_zeros_fp32 (megatron/core/optimizer/clip_grads.py).
  double num_zeros();
  // L2 norm of the whole model's parameters: of the master weights, with --reuse-fp32-param of the bf16 weights.
  // Collective. Source: calc_params_l2_norm (megatron/training/utils.py).
  double params_norm();

  struct StepFactors {
    double lr = 0, weight_decay = 0;
    std::optional<double> decoupled_lr = {};  // of word embeddings and output layer (--decoupled-lr); nullopt: lr
    int64_t step = 1;                         // 1 for the first update of the run
    double grad_scale = 1;                    // multiplies all gradients first
    double grad_norm = 0;  // what finish_gradients returned: above --clip-grad, gradients shrink to that
  };
  // The owned gradients are 0 afterwards.
  void update(const StepFactors& factors);

  // The elements [owned_begin, owned_end) of the buffers whose state this rank holds.
  int64_t owned_begin() const { return begin_; }
  int64_t owned_end() const { return end_; }
  // fp32 state of the owned range, [owned_end - owned_begin]. master is undefined in an fp32 run: the weights are it.
  // With --reuse-fp32-param master and exp_avg_sq hold their values only between join_master and split_master.
  core::TensorView master() const { return master_rest_.defined() ? parameters_.grads().rows(begin_, end_) : master_; }
  core::TensorView exp_avg() const { return exp_avg_; }
  core::TensorView exp_avg_sq() const { return exp_avg_sq_; }

  // With --reuse-fp32-param, else nothing to do: the bf16 weights are one half of the master weights, this object has
  // the other. join_master puts them together, for who saves or loads the state, in the memory of the gradients, which
  // have no use for it between an update and the next backward. split_master takes them over, the bf16 weights with
  // them; nothing if they are not together.
  void join_master();
  void split_master();
  // Collective, once every rank has loaded its state: weights that are owners' roundings reach the others.
  void share_weights();

  // Takes the fp32 values of a freshly initialised parameter as master weights, where this rank owns them.
  void set_master(const Parameter& parameter, const core::TensorView& values);

 private:
  // The part of a parameter that this rank owns, as elements of the buffers; empty if begin >= end.
  struct Range {
    int64_t begin, end;
  };
  Range owned_part(const Parameter& parameter) const;
  void reduce_partial_gradients();  // of parameters that each TP rank has a part of the sum of
  void reduce_gradients();
  double gradient_norm();
  // Calls body(parameter, part) for each parameter that counts in norms here, and has an owned part.
  void for_each_counted(core::FunctionRef<void(const Parameter&, Range)> body) const;
  // L2 norm of the whole model, of the values that `values` gives for the owned part of a parameter. Collective.
  double norm_over_model(core::FunctionRef<std::span<const float>(Range)> values);
  // Begins anew sums_, of which a caller fills those of its own parameters; then adds up all, in the order of the
  // model. Collective.
  void clear_sums() { sums_.assign(parameters_.model().size(), 0.0); }
  double sum_over_model();
  ops::SharedMaster shared_master(int64_t begin, int64_t end) const;  // elements of the buffers
  void update_parameter(const Parameter& parameter, const StepFactors& factors, float scale);

  RankState& state_;
  ParameterStore& parameters_;
  int64_t begin_ = 0, end_ = 0;
  core::Tensor master_, exp_avg_, exp_avg_sq_;
  core::Tensor master_rest_;  // with --reuse-fp32-param, in place of master_: 16 bits of each (kernels/fp32_halves.h)
  bool joined_ = false;
  bool sums_embedding_copies_;  // a tied embedding is on two stages
  std::vector<double> sums_;    // of each parameter of the model
  // Of the parameters that count here, for norm_over_model; kept, so that a step allocates nothing.
  std::vector<std::span<const float>> counted_;
  std::vector<double> squares_;
};

}  // namespace ms::train
