// What an optimizer of torch.optim says of itself besides tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ckpt/optimizer_settings.h"
#include "convert/torch/pickle.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

// A count: a number in the pickle, or a scalar tensor, which is read. Nothing for something else.
std::optional<int64_t> read_count(const TorchFile& file, PickleValue value);

// Takes over one member of a param_group: lr, betas, eps, weight_decay, step, initial_lr, Megatron's max_lr, min_lr,
// wd_mult and lr_mult, and among the options what is a plain value. A number may be a scalar tensor (capturable
// optimizers), of `file` (null: tensors are not read); `params` and what has no place is left alone. Megatron's marks
// of a group (is_expert_parallel, default_config, is_decoupled_lr) are not settings.
void read_group_member(const TorchFile* file, std::string_view key, PickleValue value, ckpt::OptimizerGroup& group);

// All members of a param_group, a dictionary.
ckpt::OptimizerGroup read_adam_group(const TorchFile* file, PickleValue group);

}  // namespace ms::convert
