// Reads the files that each rank of an FSDP job saved separately: model_world_size_N_rank_R.pt, optim_.. and
// extra_state_.., as reinforcement-learning frameworks (verl) write them.
//
// Each file is the torch.save of a dictionary. Its tensors are DTensors (dtensor.h), or plain tensors where they are
// not sharded. The shards of all ranks are merged by mesh and placements. A part that several ranks hold (HSDP
// replicas, plain tensors) is read from the first of them, after a comparison of both ends with the other copies.
#pragma once

#include <string>
#include <vector>

#include "convert/named_source.h"
#include "convert/optimizer_groups.h"
#include "core/io/json.h"

namespace ms::convert {

// Returns, for example, "model_world_size_4_rank_0.pt"; an empty string if the folder contains no such file.
std::string rank_files_sign(const std::string& folder);

// What the files contain about the optimizer besides tensors.
struct RankOptimizer {
  bool is_there = false;           // optim_world_size_N_rank_R.pt exists
  std::vector<NamedGroup> groups;  // with the model's keys; empty if the files have no groups
  nlohmann::json scheduler;        // state of torch's lr_scheduler in extra_state_..; null: absent
};

// Weights get role kParam; Adam's moments get their roles under the names of the weights; other optimizer state gets
// role kBuffer under "optim.state.NAME.FIELD". Anything left out is appended to `decisions`. optimizer: receives the
// settings of the optimizer, which a set of named tensors cannot hold; null: they are left out.
//
// Throws kCorruptData (a rank's file is missing, a mesh contradicts the number of files, parts overlap, are missing, or
// differ between replicas), kInvalidArgument for files of several world sizes, kUnsupported.
NamedShards read_rank_files(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions,
                            RankOptimizer* optimizer = nullptr);

}  // namespace ms::convert
