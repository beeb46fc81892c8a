// The parameters of a rank: its shard of each tensor, in two flat buffers with the same layout (weights in compute
// dtype, fp32 main gradients), so that the optimizer and data parallelism work on contiguous ranges
// (megatron/core/distributed/param_and_grad_buffer.py). Of gradients and weights only what the rank owns may be there,
// and memory for those that the stage uses (core/layout/buffer_cut.h): train/optim/bucket.h says when.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/layout/buffer_cut.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/tensor.h"
#include "train/ops/packed_weight.h"
#include "train/rank_state.h"

namespace ms::train {

// What an update does with a parameter, as Megatron's param groups (megatron/core/optimizer/__init__.py).
struct ParameterGroup {
  double wd_mult = 1;            // of weight decay: 0 for vectors, but norms of heads with --apply-wd-to-qk-layernorm
  double lr_mult = 1;            // of the learning rate
  bool is_decoupled_lr = false;  // has the learning rate of --decoupled-lr: word embeddings and output layer
  bool trains = true;            // false: its value stays (--freeze-parameters)
};

struct Parameter {
  layout::ParameterSpec spec;
  size_t model_index = 0;      // in ParameterStore::model()
  core::TensorView weight;     // [local shape], compute dtype; without memory while it is not gathered (place_weights)
  core::TensorView main_grad;  // [local shape], fp32; backward adds to it. Undefined if the parameter does not train,
                               // or has no memory for its gradient now (place_grads)
  int64_t offset_elems = 0;    // in both buffers; a multiple of 64
  size_t unit = 0;             // ParameterStore::unit_of
  layout::TensorCut cut;       // the ranks that share it, and which part this one has
  ParameterGroup group;
  bool grad_is_partial =
      false;  // each TP rank has a part of the gradient sum: what is replicated, under SP; head norms
  std::unique_ptr<ops::PackedWeight> packed;  // of a matrix, with --packed-weights
  bool counts_in_norm = true;  // this rank's share is not counted by another rank (replicas: TP rank 0, first stage)

  int64_t size() const { return weight.size(); }
  bool trains() const { return group.trains; }
};

// What a model stores besides its parameters, in fp32 whatever their type is: an expert_bias of a router.
struct ModelBuffer {
  layout::ParameterSpec spec;
  core::Tensor values;  // [global shape]; on all ranks of the stage alike
};

class ParameterStore {
 public:
  // Allocates the parameters that this rank's stage holds; weights and gradients are zero.
  explicit ParameterStore(RankState& state);
  // Allocates other ones. holds: asked once of each parameter of the model.
  ParameterStore(RankState& state, core::FunctionRef<bool(const layout::ParameterSpec&)> holds);
  ParameterStore(const ParameterStore&) = delete;  // packed weights refer to weight_changes_

  std::vector<Parameter>& all() { return parameters_; }
  const std::vector<Parameter>& all() const { return parameters_; }
  Parameter& at(std::string_view key);    // throws kInternal if this rank does not hold it
  Parameter* find(std::string_view key);  // nullptr if not held
  const std::vector<ModelBuffer>& buffers() const { return buffers_; }
  const ModelBuffer* find_buffer(std::string_view key) const;                 // nullptr if not held
  const std::vector<layout::ParameterSpec>& model() const { return model_; }  // of the whole model, in model order

  // Buffer of all weights: those that train, then those that do not, both padded as BufferCut does; and buffer of the
  // gradients of those that train. Of these, gradients from ZeRO-2 on and weights with ZeRO-3 are those that this rank
  // owns, one after the other.
  core::TensorView weights() const { return weights_; }
  core::TensorView grads() const { return grads_; }
  // Elements of the buffers of one replica, whoever owns them.
  int64_t trained_elems() const { return cut_.size(); }

  // Who owns which of the elements that train.
  const layout::BufferCut& cut() const { return cut_; }
  // The others, which nobody divides, behind them.
  const layout::BufferCut& frozen() const { return frozen_; }
  const layout::BufferCut::Unit& unit_of(const Parameter& parameter) const {
    return (parameter.trains() ? cut_ : frozen_).units()[parameter.unit];
  }
  // The ranks that hold the parameters of a unit alike.
  core::Communicator& replicas(const layout::BufferCut::Unit& unit) const {
    return *state_.groups.of_training(unit.replicas);
  }
  // Those of them that divide it.
  core::Communicator& owners(const layout::BufferCut::Unit& unit) const {
    return *state_.groups.of_training(unit.owners);
  }
  // With several instances of the optimizer: the ranks that own the same part of it, one of each.
  core::Communicator& instances(const layout::BufferCut::Unit& unit) const {
    return *state_.groups.of_training(unit.instances);
  }
  // Ranks that divide it; 1: none do.
  int num_owners(const Parameter& parameter) const { return cut_.num_owners(unit_of(parameter)); }
  // As elements of the buffers: what this rank owns of a parameter; empty if begin >= end, as of one that does not
  // train.
  layout::FlatRange owned_part(const Parameter& parameter) const;
  // Of that, the elements whose optimizer state this rank has: all, unless instances divide it, too.
  layout::FlatRange state_part(const Parameter& parameter) const;
  // Where such a part, not empty, is among the elements whose state this rank has.
  layout::FlatRange state_place(layout::FlatRange part) const;
  // Where a part of what this rank owns, not empty, is among the elements that it owns; its gradients, and its
  // weights.
  layout::FlatRange owned_place(layout::FlatRange part) const;
  core::TensorView owned_grads(layout::FlatRange part) const;
  core::TensorView owned_weights(layout::FlatRange part) const;

  // From ZeRO-2 on: the main_grad of a unit's parameters are in `memory`, fp32 of the unit's elements; null: nowhere.
  // Of a unit that this rank owns alone they always are. unit: its number in cut().units().
  void place_grads(size_t unit, std::byte* memory);
  // With ZeRO-3 the same of its weights, in compute dtype.
  void place_weights(size_t unit, std::byte* memory);

  // Normal weights (std init_method_std; output projections divided by sqrt(2 * num_layers)), norms the identity,
  // biases 0; drawn in global index space, so that they do not depend on the layout. Calls
  // keep(parameter, values) with the fp32 values of each, from which the optimizer takes its master weights.
  void initialize(uint64_t seed, const std::function<void(const Parameter&, const core::TensorView& values)>& keep);
  // Must follow whatever writes to weights(), or to a parameter's weight: packed copies are made anew.
  void note_weight_change() { ++weight_changes_; }
  // Before gradients are added up anew.
  void zero_grads();
  // An update has left the owned gradients 0: the next zero_grads need not. Or they have been overwritten since.
  void note_owned_grads_are_zero();
  void note_grads_are_used() { zeros_.clear(); }

 private:
  Parameter describe(const layout::ParameterSpec& spec) const;  // of model_
  void place(size_t unit, std::byte* memory, core::DType dtype, core::TensorView Parameter::*member);
  int instance() const { return state_.groups.dp_replica ? state_.groups.dp_replica->rank() : 0; }

  RankState& state_;
  std::vector<layout::ParameterSpec> model_;
  std::vector<Parameter> parameters_;
  std::vector<ModelBuffer> buffers_;
  layout::BufferCut cut_, frozen_;
  std::map<size_t, std::vector<size_t>> trained_of_unit_;  // of parameters_
  core::Tensor weights_, grads_;
  int64_t weight_changes_ = 0;
  std::vector<layout::FlatRange> zeros_;  // of grads_, already 0, in ascending order
};

}  // namespace ms::train
