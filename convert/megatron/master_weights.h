// What proves that master weights, and with them the moments beside them, are those of a parameter.
#pragma once

#include <cstddef>
#include <span>

#include "core/dtype.h"

namespace ms::convert {

// Whether each master rounds to its weight. masters: at least as many elements as weights, dense; further ones are
// passed over. To the nearest, which of a master halfway between two bf16 is the even one for torch and the greater one
// for Transformer Engine's FusedAdam with store_param_remainders (transformer_engine/common/multi_tensor/adam.cu),
// Megatron's default with --use-precision-aware-optimizer: both pass.
bool round_to_weights(std::span<const std::byte> masters, core::DType from, std::span<const std::byte> weights,
                      core::DType to);

}  // namespace ms::convert
