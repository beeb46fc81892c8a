// Sorts the tokens of a MoE layer by expert, and back: MindSpeed's npu_fused_moe_token_permute and
// npu_fused_moe_token_unpermute. The gradient of each is the transpose of the other.
//
// T tokens of h elements, k experts each: a token has k slots, slot t * k + i for token t. Tokens are fp32, bf16 or
// fp16; indices int32, probabilities fp32. Sums over a token's slots are made in fp32, in the order of its slots, and
// rounded once: there is no temporary of k * T * h elements, and no bit depends on the number of threads.
//
// Padded mode (Megatron's --moe-pad-expert-input-to-capacity) has E * C slots instead, C per expert. `indices` [E, C]
// names the token of each slot; a token may fill no slot, or many.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

struct PermutedTokens {
  core::Tensor tokens;          // [rows, h]
  core::Tensor sorted_indices;  // int32, shape of indices: the row of each slot; in padded mode the indices themselves
};

// Row j is the token of slot j after a stable sort of the slots by expert. O(T k + E) in addition to the copies.
// tokens: [T, h]. indices: the expert of each slot, [T] or [T, k]; in padded mode the token of each slot, [E, C].
// num_out_tokens: number of rows kept, the first ones (capacity drops the rest); at most, and by default, the number of
//   slots. Not allowed in padded mode, whose rows are its slots.
// Throws kInvalidArgument for an expert or a token out of range (experts: 0 to 65535), or such a num_out_tokens.
PermutedTokens token_permute(Context& context, const core::TensorView& tokens, const core::TensorView& indices,
                             std::optional<int64_t> num_out_tokens = {}, bool padded_mode = false);

// The two halves of the same, without padded mode: places, int32 of indices' shape (PermutedTokens::sorted_indices),
// and then as often as there are tensors to sort, tokens [T, h] -> [rows, h].
core::Tensor sort_by_expert(Context& context, const core::TensorView& indices);
core::Tensor permute_sorted(Context& context, const core::TensorView& tokens, const core::TensorView& sorted_indices,
                            int64_t rows);

// dtokens [num_tokens, h] = for each token, the sum of the rows of dpermuted [rows, h] it was copied to.
core::Tensor token_permute_backward(Context& context, const core::TensorView& dpermuted,
                                    const core::TensorView& sorted_indices, int64_t num_tokens,
                                    bool padded_mode = false);

// y [num_tokens, h] = sum over a token's slots of probs[slot] * permuted[row of the slot]; slots without a row (dropped
// by num_out_tokens) add nothing.
// probs: fp32, one for each slot; null: all 1. num_tokens: T, or in padded mode the length of MindSpeed's
//   restore_shape. Except in padded mode, the number of slots is a multiple of it.
core::Tensor token_unpermute(Context& context, const core::TensorView& permuted, const core::TensorView& sorted_indices,
                             const core::TensorView* probs, int64_t num_tokens, bool padded_mode = false);

struct UnpermuteGradients {
  core::Tensor dpermuted;  // shape and dtype of permuted
  core::Tensor dprobs;     // fp32, shape of sorted_indices; undefined without probs
};

// dpermuted[row] = probs[slot] * dy[token], dprobs[slot] = <dy[token], permuted[row]> (0 for dropped slots). dy: [T,
// h].
UnpermuteGradients token_unpermute_backward(Context& context, const core::TensorView& dy,
                                            const core::TensorView& permuted, const core::TensorView& sorted_indices,
                                            const core::TensorView* probs, bool padded_mode = false);

}  // namespace ms::ops
