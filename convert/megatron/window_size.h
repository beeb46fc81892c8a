// Reads the sliding window of a Megatron checkpoint's args.
#pragma once

#include "convert/megatron/args.h"
#include "core/transformer_config.h"

namespace ms::convert {

// args.window_size is (L, R): keys before a query, -1 for all, and after it, which a causal mask hides. sliding_window
// counts the query's own key, too. Throws kUnsupported for other values.
void take_window(const MegatronArgs& args, core::TransformerConfig& model);

}  // namespace ms::convert
