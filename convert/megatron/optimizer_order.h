// Defines the order in which Megatron's optimizers store the state of a rank's parameters, since they store no names:
// groups of parameters, in which the mixed-precision optimizer counts them, and buffers of the distributed optimizer.
// Both the reader and the writer of trees use it.
//
// Sources: megatron/core/optimizer/__init__.py (_get_param_groups), megatron/core/distributed/
// {distributed_data_parallel,param_and_grad_buffer}.py.
#pragma once

#include <span>
#include <vector>

#include "convert/megatron/flat_layout.h"
#include "convert/megatron/model.h"
#include "core/layout/parameter_specs.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

using MegatronParameters = std::vector<const MegatronParameter*>;

// A state per parameter, with its key in PyTorch's Adam and in distrib_optim.pt.
struct OptimizerKind {
  const char* key;
  core::TensorRole role;
};
inline constexpr OptimizerKind kOptimizerKinds[] = {{"param", core::TensorRole::kMaster},
                                                    {"exp_avg", core::TensorRole::kExpAvg},
                                                    {"exp_avg_sq", core::TensorRole::kExpAvgSq}};
inline constexpr std::span<const OptimizerKind, 2> kMoments = std::span(kOptimizerKinds).last<2>();

struct GroupRule {
  bool qk_norms_decay = false;  // --apply-wd-to-qk-layernorm
  bool decoupled_lr = false;    // --decoupled-lr: word embeddings and output layer have their own groups
};

// Whether weight decay applies to the parameter; it does not for vectors and biases.
bool is_decayed(const layout::ParameterSpec& spec, const GroupRule& rule);
bool is_embedding_or_output(const layout::ParameterSpec& spec);

// Megatron has a separate optimizer for experts that are spread over expert-parallel ranks.
enum class OptimizerPart : uint8_t { kAll, kDense, kExperts };

// Whether the model has such experts anywhere.
bool has_expert_optimizer(const MegatronModel& model);

// Number of groups that Megatron has on every rank, even without parameters: one with weight decay and one without; for
// experts, which have only matrices, just the one with decay.
inline size_t num_optimizer_groups(OptimizerPart part) { return part == OptimizerPart::kExperts ? 1 : 2; }

// Returns the parameters with weight decay, then those without, each in registration order over all chunks. Groups
// without parameters are left out. If a tensor holds several parameters, only the first is listed, here and below.
std::vector<MegatronParameters> optimizer_groups(const MegatronModel& model, std::span<const MegatronChunk> chunks,
                                                 const GroupRule& rule, OptimizerPart part);

// Returns the buffers of a chunk: one per weight dtype, in the order in which the dtypes first occur.
std::vector<MegatronParameters> optimizer_buffers(const MegatronModel& model, const MegatronChunk& chunk,
                                                  OptimizerPart part);

std::vector<FlatParameter> flat_parameters(const MegatronModel& model, const MegatronParameters& parameters);

}  // namespace ms::convert
