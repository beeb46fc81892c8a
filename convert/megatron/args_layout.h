// How args say that a model is cut: for checkpoints whose files do not tell it, as those of a tree do.
#pragma once

#include "ckpt/layout.h"
#include "convert/megatron/args.h"
#include "convert/megatron/model.h"
#include "convert/megatron/names.h"

namespace ms::convert {

// Without chunks; latent attention's projections down are cut as the layers cut them whose naming is said.
// padded_rows: of the vocabulary. Throws kCorruptData for sizes that the model cannot have, kUnsupported for pipelines
// that are not dealt evenly, by the first and last stage, or with embedding and loss counted as layers.
// Source: megatron/core/transformer/transformer_block.py (get_num_layers_to_build).
MegatronModel megatron_model_of_args(const MegatronArgs& args, const core::TransformerConfig& config,
                                     int64_t padded_rows, MegatronNaming naming);

}  // namespace ms::convert
