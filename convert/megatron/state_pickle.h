// Writes the parts that Megatron's pickled dictionaries share in both formats: args, the optimizer's groups, the
// schedule.
//
// Sources: megatron/training/checkpointing.py (generate_state_dict, load_checkpoint), megatron/core/optimizer/
// {optimizer,distrib_optimizer,optimizer_param_scheduler}.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "convert/megatron/optimizer_order.h"
#include "convert/megatron/target_state.h"
#include "convert/torch/pickle_writer.h"

namespace ms::convert {

// checkpoint_version: this one has the current order of queries, keys and values.
inline constexpr double kMegatronCheckpointVersion = 3.0;

// Writes a key and its value in a dictionary.
void pickle_entry(PickleWriter& pickle, std::string_view key, bool value);
void pickle_entry(PickleWriter& pickle, std::string_view key, int64_t value);
void pickle_entry(PickleWriter& pickle, std::string_view key, double value);
void pickle_none(PickleWriter& pickle, std::string_view key);

// Writes the entries args and opt_param_scheduler; skips those that the state lacks.
void write_megatron_args(PickleWriter& pickle, const MegatronTargetState& state);
void write_megatron_scheduler(PickleWriter& pickle, const MegatronTargetState& state);

// Writes the entry param_groups: parameters with weight decay, and without (optimizer_order.h). counts: parameters per
// group, which are then listed by number in `params`; empty: no lists. Unknown learning rates and weight decay are left
// out: Megatron's scheduler sets them.
void write_param_groups(PickleWriter& pickle, const MegatronTargetState& state, OptimizerPart part,
                        std::span<const size_t> counts);

}  // namespace ms::convert
