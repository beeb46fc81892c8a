// Reads the non-tensor state of a torch.optim optimizer: step counts and param_group settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ckpt/optimizer_settings.h"
#include "convert/torch/pickle.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

// Reads a count, which is a number in the pickle or a scalar tensor. Returns nullopt for any other value.
std::optional<int64_t> read_count(const TorchFile& file, PickleValue value);

// Copies one member of a param_group into `group`: lr, betas, eps, weight_decay, step, initial_lr, Megatron's max_lr,
// min_lr, wd_mult and lr_mult; any other plain value becomes an option. A number may be a scalar tensor of `file`
// (capturable optimizers); with a null `file` tensors are not read. `params` and values without a place in
// OptimizerGroup are skipped. Megatron's group markers (is_expert_parallel, default_config, is_decoupled_lr) are not
// settings and are skipped too.
void read_group_member(const TorchFile* file, std::string_view key, PickleValue value, ckpt::OptimizerGroup& group);

// Reads all members of a param_group, which is a dictionary.
ckpt::OptimizerGroup read_adam_group(const TorchFile* file, PickleValue group);

}  // namespace ms::convert
