// Derives from args how a model is cut, for checkpoints whose files do not show it. (The files of a tree do.)
#pragma once

#include "convert/megatron/args.h"
#include "convert/megatron/model.h"
#include "convert/megatron/names.h"

namespace ms::convert {

// Returns the model without chunks. naming determines how latent attention's down projections are cut. padded_rows:
// rows of the stored vocabulary. Throws kCorruptData for sizes that do not fit the model; kUnsupported for pipelines
// that are not split evenly, by the sizes of the first and last stage, or with embedding and loss counted as layers.
// Source: megatron/core/transformer/transformer_block.py (get_num_layers_to_build).
MegatronModel megatron_model_of_args(const MegatronArgs& args, const core::TransformerConfig& config,
                                     int64_t padded_rows, MegatronNaming naming);

}  // namespace ms::convert
