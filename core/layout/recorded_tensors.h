// The tensors that `mstrain --save-tensors` records, by name and in the order in which one rank computes them.
//
// ":output" is what a module computes, ":grad" the gradient of that, or of a parameter. Modules have Megatron's names:
// self_attn_bda is the residual stream behind attention (bias, dropout, add), decoder.layers.N that behind the MLP,
// output_layer the logits, which a run with --loss-chunk-size never has whole. The
// global shapes are [seq, samples of the step, columns], those of a parameter's gradient the parameter's.
#pragma once

#include <string>
#include <vector>

#include "core/transformer_config.h"

namespace ms::layout {

// Of a resolved, dense model.
std::vector<std::string> recorded_tensors(const core::TransformerConfig& model);

}  // namespace ms::layout
