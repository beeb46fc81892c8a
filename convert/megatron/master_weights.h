// Checks that master weights, and so the moments stored with them, belong to a parameter.
#pragma once

#include <cstddef>
#include <span>

#include "core/dtype.h"

namespace ms::convert {

// Returns whether each master weight rounds to its weight. masters: dense, at least as many elements as weights; the
// rest is ignored. Rounding is to nearest. For a master halfway between two bf16 values, both neighbours pass: torch
// rounds to the even one, and Transformer Engine's FusedAdam with store_param_remainders
// (transformer_engine/common/multi_tensor/adam.cu; Megatron's default with --use-precision-aware-optimizer) to the
// greater one.
bool round_to_weights(std::span<const std::byte> masters, core::DType from, std::span<const std::byte> weights,
                      core::DType to);

}  // namespace ms::convert
