// The parameters of a rank: its shard of each tensor, in two flat buffers with the same layout (weights in compute
// dtype, fp32 main gradients), so that the optimizer and data parallelism work on one contiguous range
// (megatron/core/distributed/param_and_grad_buffer.py).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/layout/buffer_sections.h"
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
  core::TensorView weight;     // [local shape], compute dtype
  core::TensorView main_grad;  // [local shape], fp32; backward adds to it. Undefined if the parameter does not train
  int64_t offset_elems = 0;    // in both buffers; a multiple of 64
  size_t section = 0;          // of ParameterStore::sections()
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

  // Buffer of all weights, and of the gradients of those that train, which come first.
  core::TensorView weights() const { return weights_; }
  core::TensorView grads() const { return grads_; }
  int64_t size_elems() const { return weights_.size(); }
  int64_t trained_elems() const { return grads_.size(); }
  const std::array<layout::BufferSection, layout::kNumSections>& sections() const { return sections_; }
  // The ranks that hold the parameters of a section alike.
  core::Communicator& replicas(size_t section) const { return *state_.groups.of_training(sections_[section].replicas); }

  // Normal weights (std init_method_std; output projections divided by sqrt(2 * num_layers)), norms the identity,
  // biases 0; drawn in global index space, so that they do not depend on the layout. Calls
  // keep(parameter, values) with the fp32 values of each, from which the optimizer takes its master weights.
  void initialize(uint64_t seed, const std::function<void(const Parameter&, const core::TensorView& values)>& keep);
  // Must follow whatever writes to weights(), or to a parameter's weight: packed copies are made anew.
  void note_weight_change() { ++weight_changes_; }
  // Before gradients are added up anew.
  void zero_grads();
  // An update has left these elements of grads() 0, in ascending order: the next zero_grads need not.
  void note_zero_grads(std::span<const layout::FlatRange> ranges) { zeros_.assign(ranges.begin(), ranges.end()); }

 private:
  Parameter describe(const layout::ParameterSpec& spec) const;  // of model_

  RankState& state_;
  std::vector<layout::ParameterSpec> model_;
  std::vector<Parameter> parameters_;
  std::vector<ModelBuffer> buffers_;
  core::Tensor weights_, grads_;
  int64_t weight_changes_ = 0;
  std::vector<layout::FlatRange> zeros_;  // of grads_, already 0
  std::array<layout::BufferSection, layout::kNumSections> sections_;
};

}  // namespace ms::train
