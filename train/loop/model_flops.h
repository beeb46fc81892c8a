// The FLOPs that a model needs for a sample, regardless of how a run computes it: the numerator of MFU.
//
// Source: PaLM, appendix B (Chowdhery et al. 2022): 6 FLOPs a token for each weight that multiplies it, and 12 x layers
// x heads x head size x sequence for attention. Two things follow Megatron (num_floating_point_operations,
// megatron/training/training.py): an embedding is a lookup and counts nothing, and attention counts only the half of
// the scores that the causal mask leaves. Norms, softmax and recomputation count nothing. The FLOPs that a run
// executes, recomputation included, are in ops::Context::flops, the numerator of HFU.
#pragma once

#include <cstdint>

#include "core/transformer_config.h"

namespace ms::train {

// Forward and backward of one sample of seq_length tokens. For a dense model that is resolved (without experts and
// latent attention, which are not trained). tensor_model_parallel_size: for the padded rows of the output layer.
int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length,
                               int tensor_model_parallel_size);

}  // namespace ms::train
