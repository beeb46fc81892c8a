// Ranks of a run that were started with different flags, or that compute differently.
#pragma once

#include <string>

#include "core/comm/communicator.h"
#include "core/io/json.h"

namespace ms::train {

// "--lr 0.001 and 0.002": the first flags in which two dumps of a configuration (core::ConfigFields::dump) differ.
std::string flag_differences(const nlohmann::json& own, const nlohmann::json& other);

// What a run depends on besides its flags: cluster_fingerprint (train/features/context_parallel.h) and grid_fingerprint
// (train/features/attention_mask_grid.h).
struct RunFingerprints {
  std::string clusters, grid;
};

// Collective. Throws kInvalidArgument on all ranks if the dump of one, or its fingerprints, differ from rank 0's.
void require_same_flags(core::Communicator& group, const nlohmann::json& own, const RunFingerprints& fingerprints);

}  // namespace ms::train
