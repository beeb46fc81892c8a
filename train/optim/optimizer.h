// The optimizer of a rank: master weights and state of what it owns of its parameters, with or without the distributed
// optimizer (ZeRO-1; megatron/core/optimizer/distrib_optimizer.py). How weights change is an UpdateRule's
// (update_rule.h), who owns what BufferCut's (core/layout/buffer_cut.h), what data parallelism does that of Buckets
// (bucket.h).
//
// A step completes the gradients (tied embedding, partial gradients of norms, data parallelism), computes their global
// norm, and updates what this rank owns: without ZeRO all, else its blocks, of which gradients are reduce-scattered and
// weights all-gathered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "train/memory/state_memory.h"
#include "train/model/parameters.h"
#include "train/optim/bucket.h"
#include "train/optim/model_sums.h"
#include "train/optim/update_rule.h"
#include "train/rank_state.h"

namespace ms::train {

class GptStage;

// An fp32 number of each parameter.
struct OptimizerState {
  core::TensorRole role;
  core::TensorView values;  // [elements of the owned range]
};

class Optimizer {
 public:
  Optimizer(RankState& state, ParameterStore& parameters);

  // From now on the stage announces what it does with its parameters, where --overlap-grad-reduce or ZeRO-2 has a use
  // for it.
  // This object must outlive the stage.
  void follow(GptStage& stage);

  // Makes the gradients whole. main_grad of every parameter must be final for this rank's micro-batches; afterwards
  // only update() has a use for it. Returns the global norm of grad_scale x gradients, the same on all ranks; not
  // finite if a gradient is not.
  double finish_gradients(double grad_scale);

  // Between finish_gradients() and update(): elements of the gradients that are 0, of the whole model. Collective.
  double num_zeros() { return sums_.zero_gradients(); }
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
  // The owned gradients are 0 afterwards. Weights of other ranks may still be on their way: await_weights().
  void update(const StepFactors& factors);
  // For who reads weights other than by the stage that this object follows.
  void await_weights() { buckets_.await_all_weights(); }

  // fp32 state of what this rank owns, [BufferCut::state_size], by role: master weights, unless the weights are fp32
  // themselves, and what the update rule keeps. With --reuse-fp32-param and --swap-optimizer it is valid only between
  // hold_state and release_state; with the latter it has no memory otherwise.
  std::vector<OptimizerState> state() const;
  core::TensorView master() const;  // undefined if there are none
  const std::vector<Bucket>& buckets() const { return buckets_.all(); }

  // For who saves or loads the state, which is all there in between.
  // With --reuse-fp32-param the bf16 weights are one half of the master weights, this object has the other: they are
  // put together in the memory of the gradients, which have no use for it between an update and the next backward.
  // release_state takes them over, the bf16 weights with them.
  // With --swap-optimizer the state comes into memory, and leaves it again. Throws what its tier has failed with.
  void hold_state();
  void release_state(bool is_changed);  // since hold_state; nothing to do if nobody holds it
  // From the next release_state on the state is on this tier between updates, which have it in so many chunks. The tier
  // must outlive this object.
  void swap_state(SwapTier& tier, int64_t times) { memory_.swap_to(tier, times); }
  // Collective, once every rank has loaded its state: weights that are owners' roundings reach the others.
  void share_weights();

  // Takes the fp32 values of a freshly initialised parameter as master weights, where this rank owns them.
  void set_master(const Parameter& parameter, const core::TensorView& values);

 private:
  ops::SharedMaster shared_master(layout::FlatRange part) const;  // owned elements of one unit
  std::span<float> marks(layout::FlatRange part) const;           // the same of the state whose signs these use
  std::span<float> joined(layout::FlatRange part) const;          // master weights in the gradients' memory
  // Of a tied embedding, what this rank adds up with the other stage's.
  core::TensorView shared_embedding_gradient() const;
  std::span<float> owned_master(layout::FlatRange part) const;  // owned elements of one unit
  // To parts_: those of its elements whose state is in this range.
  void add_part(const Parameter& parameter, const StepFactors& factors, float scale, layout::FlatRange with_state);
  void update_parts();  // and clears them
  void join_master();
  void split_master();

  RankState& state_;
  ParameterStore& parameters_;
  Buckets buckets_;
  ModelSums sums_;
  bool has_master_;  // in memory_, before what the update rule keeps
  StateMemory memory_;
  core::Tensor master_rest_;  // with --reuse-fp32-param, in place of them: 16 bits of each (kernels/fp32_halves.h)
  std::unique_ptr<UpdateRule> rule_;
  std::vector<UpdateRule::Part> parts_;     // of the update under way
  std::vector<core::TensorView> to_round_;  // fp16 weights of each part
  bool joined_ = false;
  Parameter* shared_embedding_ = nullptr;  // a tied one that is on two stages and trains
};

}  // namespace ms::train
