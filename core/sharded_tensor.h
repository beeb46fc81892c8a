// Describes one rank's piece of a global tensor without holding data: Megatron's ShardedTensor.
//
// A global tensor is an n-d box, a shard a sub-box. Offsets and extents are in elements, outermost axis first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/dims.h"
#include "core/dtype.h"

namespace ms::core {

int64_t num_elements(const Dims& dims);  // product; 1 for a scalar (no axes)

// Which part of the training state a tensor is. Files have these numbers: new ones follow the others.
enum class TensorRole : uint8_t { kParam, kMaster, kExpAvg, kExpAvgSq, kBuffer, kMomentumBuffer };
inline constexpr size_t kNumTensorRoles = 6;
// Those of an optimizer's state. kExpAvg and kExpAvgSq are AdamW's moments, kMomentumBuffer is SGD's (torch.optim's
// names).
inline constexpr TensorRole kOptimizerRoles[] = {TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq,
                                                 TensorRole::kMomentumBuffer};
inline bool is_optimizer_role(TensorRole role) { return role != TensorRole::kParam && role != TensorRole::kBuffer; }
std::string_view role_name(TensorRole role);   // "param", "master", "exp_avg", ..; "momentum_buffer"
TensorRole parse_role(std::string_view name);  // throws kCorruptData on an unknown name

struct ShardedTensor {
  std::string key;                       // canonical name: the mcore name with the global layer index
  TensorRole role = TensorRole::kParam;  // (key, role) names a global tensor
  DType dtype = DType::kFp32;
  Dims global_shape;
  Dims global_offset;
  Dims local_shape;
  int replica_id = 0;  // 0: the replica that is written; the others hold the same values

  bool operator==(const ShardedTensor&) const = default;
};

}  // namespace ms::core
