// The files that each rank of an FSDP job saved of its own: model_world_size_N_rank_R.pt, optim_.. and extra_state_..,
// as frameworks for reinforcement learning (verl) write them.
//
// Each is a torch.save of a dictionary whose tensors are DTensors (dtensor.h) or, where they are not cut, plain ones.
// What the ranks hold is put together by mesh and placements: shards of named tensors. Parts that several ranks hold
// (HSDP's replicas, plain tensors) are taken from the first of them after a look at both ends that all hold the same.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convert/named_source.h"
#include "convert/optimizer_groups.h"

namespace ms::convert {

// "model_world_size_4_rank_0.pt"; empty if the folder holds no such file.
std::string rank_files_sign(const std::string& folder);

// What the files say of the optimizer besides tensors.
struct RankOptimizer {
  bool is_there = false;           // optim_world_size_N_rank_R.pt
  std::vector<NamedGroup> groups;  // names are the model's keys; empty if the files have no groups
  nlohmann::json scheduler;        // the state of torch's lr_scheduler in extra_state_..; null: none
};

// Weights are of role kParam, Adam's moments of theirs under the names of the weights; other optimizer state is of role
// kBuffer under "optim.state.NAME.FIELD". What is left out is appended to `decisions`. optimizer: takes the settings of
// the optimizer, which a set of named tensors has no place for; null: they are left out.
//
// Throws kCorruptData (the file of a rank is missing, a mesh contradicts the number of files, parts that overlap, are
// missing or should be equal and are not), kInvalidArgument for files of several world sizes, kUnsupported.
NamedShards read_rank_files(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions,
                            RankOptimizer* optimizer = nullptr);

}  // namespace ms::convert
