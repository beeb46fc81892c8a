// Reads the optimizer state of a Megatron tree: finds the fp32 master weights and the moments of each parameter.
//
// Megatron's mixed-precision optimizer identifies parameters by position in its groups, the distributed one by offset
// in flat buffers (distrib_optim.pt). Neither stores names, so the result is proved: shapes agree, and a master weight
// rounds to the weight, at both ends of every parameter. Sources:
// megatron/core/optimizer/{__init__,optimizer,distrib_optimizer}.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/megatron/model.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

struct MegatronState {
  const MegatronParameter* parameter = nullptr;  // in MegatronModel::chunks
  core::TensorRole role = core::TensorRole::kMaster;
  const TorchFile* file = nullptr;
  TorchTensor tensor;
  std::string name;
  uint64_t first = 0;  // first element of the rank's part in the tensor
};

struct MegatronOptimizer {
  std::vector<std::unique_ptr<TorchFile>> files;   // distrib_optim.pt of each rank
  std::vector<std::vector<MegatronState>> states;  // per rank of the tree; empty: none is stored
  std::optional<int64_t> step;  // from the parameters' state; the groups may have it instead (progress.h)
};

// Returns three states per parameter (two in an fp32 model, whose weights are their own masters), also for the tied
// copy. Throws kCorruptData if the state does not fit the weights, kUnsupported for another optimizer than Adam.
MegatronOptimizer read_megatron_optimizer(const MegatronTree& tree, const MegatronModel& model,
                                          std::vector<std::string>& decisions);

}  // namespace ms::convert
