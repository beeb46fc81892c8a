// FLOPs of a training step: what the model needs (the numerator of MFU), and what a rank executes (that of HFU).
#pragma once

#include <cstdint>

#include "core/layout/sub_steps.h"
#include "core/layout/training_step.h"
#include "core/transformer_config.h"

namespace ms::layout {

// Forward and backward of one sample of seq_length tokens, regardless of how a run computes it.
//
// Source: PaLM, appendix B (Chowdhery et al. 2022): 6 FLOPs a token for each weight that multiplies it, and 12 x layers
// x heads x head size x sequence for attention. Two things follow Megatron (num_floating_point_operations,
// megatron/training/training.py): an embedding is a lookup and counts nothing, and attention counts only the half of
// the scores that the causal mask leaves. Of a sliding window it counts what that leaves, which Megatron does not: a
// window is part of the model, and the kernels skip what lies outside. Norms, softmax and recomputation count nothing.
// Of experts it counts those that a token meets. For a model that is resolved. tensor_model_parallel_size: for the
// padded rows of the output layer. mask: of a model without windows; of a grid it counts the scores that are visible.
int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length, int tensor_model_parallel_size,
                               const SampleMask& mask = {});

// What of it are the products of attention. tokens: of the sample, or of a document that sees no other.
int64_t attention_flops(const core::TransformerConfig& model, int64_t tokens, const SampleMask& mask = {});

// What a rank executes in the forward of a sub-step, for one micro-batch: 2 m n k of each matrix product, and the same
// for the products of attention, of which the mask leaves half (ops::Context::flops). 0 for communication.
// cp_rank: with windows and grids, ranks that share a sequence may differ.
int64_t forward_flops(const TrainingStep& step, int64_t layer, SubStep sub_step, int cp_rank = 0);

// What `rank` executes in a step, recomputation included.
int64_t executed_flops(const TrainingStep& step, int rank);

}  // namespace ms::layout
