// What an optimizer of torch.optim says of itself besides tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "convert/torch/pickle.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

// A count: a number in the pickle, or a scalar tensor, which is read. Nothing for something else.
std::optional<int64_t> read_count(const TorchFile& file, PickleValue value);

// Of one of an Adam's param_groups: sets `step` in what a checkpoint says of its run (CheckpointInfo::common), if the
// group says it, and in `config`, where mstrain has its own, betas and eps.
void add_adam_group(PickleValue group, nlohmann::json& common);

}  // namespace ms::convert
