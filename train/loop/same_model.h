// Checks that a checkpoint belongs to the configured model. Another model would load wherever shapes agree, and train
// wrongly.
#pragma once

#include "core/transformer_config.h"

namespace ms::train {

// Compares every field that the weights depend on; dropout, initialization and padding may differ. Throws
// kInvalidArgument naming the flag, its value and the checkpoint's.
void check_same_model(const core::TransformerConfig& saved, const core::TransformerConfig& wanted);

}  // namespace ms::train
