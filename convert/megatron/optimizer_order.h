// The order in which Megatron's optimizers keep the state of a rank's parameters, none of which they store by name:
// groups of parameters, in which those of the mixed-precision optimizer are counted, and buffers of the distributed
// one. What reads a tree and what writes one go by the same rules.
//
// Sources: megatron/core/optimizer/__init__.py (_get_param_groups), megatron/core/distributed/
// {distributed_data_parallel,param_and_grad_buffer}.py.
#pragma once

#include <span>
#include <vector>

#include "convert/megatron/flat_layout.h"
#include "convert/megatron/model.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

using MegatronParameters = std::vector<const MegatronParameter*>;

// What is kept of a parameter, as PyTorch's Adam and distrib_optim.pt call it.
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
  bool decoupled_lr = false;    // --decoupled-lr: word embeddings and output layer have groups of their own
};

// Whether weight decay applies to the parameter: to no vector and no bias.
bool is_decayed(const ckpt::ParameterSpec& spec, const GroupRule& rule);
bool is_embedding_or_output(const ckpt::ParameterSpec& spec);

// Megatron has an optimizer of their own for experts that are spread over expert-parallel ranks.
enum class OptimizerPart : uint8_t { kAll, kDense, kExperts };

// Whether it has such experts, somewhere in the model.
bool has_expert_optimizer(const MegatronModel& model);

// Of groups that Megatron has on every rank, also without parameters: with weight decay and without; of experts, which
// are matrices all, with it.
inline size_t num_optimizer_groups(OptimizerPart part) { return part == OptimizerPart::kExperts ? 1 : 2; }

// First those whose weights decay, then those whose do not; each in the order of registration, over all chunks. Groups
// without parameters are left out. Of several parameters in one tensor the first stands for all, here and below.
std::vector<MegatronParameters> optimizer_groups(const MegatronModel& model, std::span<const MegatronChunk> chunks,
                                                 const GroupRule& rule, OptimizerPart part);

// The buffers of a chunk: by type of weight, in the order in which the types appear.
std::vector<MegatronParameters> optimizer_buffers(const MegatronModel& model, const MegatronChunk& chunk,
                                                  OptimizerPart part);

std::vector<FlatParameter> flat_parameters(const MegatronModel& model, const MegatronParameters& parameters);

}  // namespace ms::convert
