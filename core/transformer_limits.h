// Limits of a model's sizes (core/transformer_config.h), so that sums and products of them fit into 64 bits.
#pragma once

#include <cstdint>

namespace ms::core {

inline constexpr int64_t kMaxModelSize = INT32_MAX;         // of each size
inline constexpr int64_t kMaxModelLayers = 1 << 16;         // there are lists with one entry per layer
inline constexpr double kMaxParameters = int64_t{1} << 53;  // exact in JSON, and counted in 64 bits

}  // namespace ms::core
