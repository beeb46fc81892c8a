// Operators under MindSpeed's names (mindspeed.ops), with arguments in MindSpeed's order, for those who know them by
// that name or port a script. Each calls one of our operators, whose header documents it.
//
// The context comes first. Optional tensors are pointers. There is no autograd: a gradient is a function of its own,
// under our name (grouped_matmul_dgrad, ..), and what it needs is returned by forward. npu_rotary_position_embedding is
// in train/ops/rotary_position_embedding.h under that name; so are, in headers of their own, operators that communicate
// (train/ops/README.md).
#pragma once

#include <optional>
#include <span>

#include "train/ops/activation.h"
#include "train/ops/dropout_add_norm.h"
#include "train/ops/ffn.h"
#include "train/ops/fusion_attention.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/linear.h"
#include "train/ops/norm.h"
#include "train/ops/optimizer.h"
#include "train/ops/quantized_matmul.h"
#include "train/ops/ring_attention.h"
#include "train/ops/token_permute.h"

namespace ms::ops {

// rstd: receives what backward needs; may be null.
core::Tensor npu_rms_norm(Context& context, const core::TensorView& x, const core::TensorView& gamma,
                          double epsilon = 1e-6, core::Tensor* rstd = nullptr);

// Gates along the last axis, the only one supported.
core::Tensor npu_swiglu(Context& context, const core::TensorView& x);

// Both scales, the dropout and the flags are fields of DropoutAddNormParams; its kind is set by these functions.
DropoutAddNormResult npu_dropout_add_layer_norm(Context& context, const DropoutAddNormInputs& inputs,
                                                DropoutAddNormParams params);
DropoutAddNormResult npu_dropout_add_rms_norm(Context& context, const DropoutAddNormInputs& inputs,
                                              DropoutAddNormParams params);

FusionAttentionResult npu_fusion_attention(Context& context, const core::TensorView& query, const core::TensorView& key,
                                           const core::TensorView& value, const FusionAttentionParams& params);

FusionAttentionResult npu_ring_attention_update(Context& context, const PartialAttention& prev,
                                                const PartialAttention& cur,
                                                std::span<const int64_t> actual_seq_qlen = {},
                                                AttentionLayout layout = AttentionLayout::kSbh);

PermutedTokens npu_fused_moe_token_permute(Context& context, const core::TensorView& tokens,
                                           const core::TensorView& indices, std::optional<int64_t> num_out_tokens = {},
                                           bool padded_mode = false);

// restore_shape: [tokens, h]; required in padded mode, not allowed otherwise. Otherwise there are as many tokens as
// probs has rows, or without probs as there are slots.
core::Tensor npu_fused_moe_token_unpermute(Context& context, const core::TensorView& permuted_tokens,
                                           const core::TensorView& sorted_indices,
                                           const core::TensorView* probs = nullptr, bool padded_mode = false,
                                           const core::Dims& restore_shape = {});

// group_type 0: y [m, n] from x [m, k] and weight [groups, k, n], with the rows of x in groups. group_type 2: dW
// [groups, k, n] from x [m, k] and weight, which is dy [m, n], both in groups of rows; with gemm_fusion it is added to
// main_grad (fp32, MindSpeed's original_weight.main_grad) instead, and the result is undefined.
// group_list: the ends of the groups; in v2 their sizes. Throws kInvalidArgument for another type, a bias in type 2,
// and gemm_fusion in type 0 or without main_grad.
core::Tensor npu_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                     const core::TensorView* bias, std::span<const int64_t> group_list, int group_type = 0,
                     bool gemm_fusion = false, const core::TensorView* main_grad = nullptr);
core::Tensor npu_gmm_v2(Context& context, const core::TensorView& x, const core::TensorView& weight,
                        const core::TensorView* bias, std::span<const int64_t> group_list, int group_type = 0,
                        bool gemm_fusion = false, const core::TensorView* main_grad = nullptr);

// main_grad (fp32 [out, in]) += grad_output^T total_input; and for groups of rows, main_grad (fp32 [groups, k, n]) +=
// x^T dy, where group_list holds the ends of the groups.
void npu_matmul_add_fp32(Context& context, const core::TensorView& total_input, const core::TensorView& grad_output,
                         const core::TensorView& main_grad);
void npu_groupmatmul_add_fp32(Context& context, const core::TensorView& x, const core::TensorView& dy,
                              std::span<const int64_t> group_list, const core::TensorView& main_grad);

// act_type: 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu; others throw kInvalidArgument.
core::Tensor npu_quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                           const core::TensorView& scale, const core::TensorView* per_token_scale,
                           const core::TensorView* bias, std::span<const int64_t> group_list,
                           core::DType output_dtype = core::DType::kFp16, int act_type = 0);
core::Tensor npu_quant_gmm_v2(Context& context, const core::TensorView& x, const core::TensorView& weight,
                              const core::TensorView& scale, const core::TensorView* per_token_scale,
                              const core::TensorView* bias, std::span<const int64_t> group_list,
                              core::DType output_dtype = core::DType::kFp16, int act_type = 0);

core::Tensor npu_weight_quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                                  const core::TensorView& antiquant_scale, const core::TensorView* antiquant_offset,
                                  const core::TensorView* bias, std::span<const int64_t> group_list);
core::Tensor npu_weight_quant_gmm_v2(Context& context, const core::TensorView& x, const core::TensorView& weight,
                                     const core::TensorView& antiquant_scale, const core::TensorView* antiquant_offset,
                                     const core::TensorView* bias, std::span<const int64_t> group_list);

// MindSpeed's keyword arguments, in its order, except inner_precise: sums are always fp32. E: experts; without experts
// that axis is omitted, also from the weights.
struct NpuFfnOptions {
  std::span<const int64_t> expert_tokens;        // rows of each expert; excludes expert_tokens_index
  std::span<const int64_t> expert_tokens_index;  // ends of the experts' rows
  const core::TensorView* bias1 = nullptr;  // [E, n1], x's dtype, or fp32 that is rounded to it; int32 if x is int8
  const core::TensorView* bias2 = nullptr;  // [E, n2]
  const core::TensorView* scale = nullptr;  // fp32 [E] or [E, k2]; these four are for int8 x and weights
  const core::TensorView* offset = nullptr;
  const core::TensorView* deq_scale1 = nullptr;  // fp32 or bf16 [E, n1]
  const core::TensorView* deq_scale2 = nullptr;
  // For int8 and packed 4-bit weights with floating-point x: x's dtype or fp32; [E], [E, n] or, in groups of k, [E, g,
  // n].
  const core::TensorView* antiquant_scale1 = nullptr;
  const core::TensorView* antiquant_scale2 = nullptr;
  const core::TensorView* antiquant_offset1 = nullptr;
  const core::TensorView* antiquant_offset2 = nullptr;
  core::DType output_dtype = core::DType::kFp16;  // used if x is int8
};

// y [.., n2] from x [.., k1], weight1 [E, k1, n1] and weight2 [E, k2, n2]. activation: fastgelu, gelu, relu, silu,
// geglu, swiglu or reglu. Throws kInvalidArgument for another one and for options that exclude each other.
core::Tensor npu_ffn(Context& context, const core::TensorView& x, const core::TensorView& weight1,
                     const core::TensorView& weight2, std::string_view activation, const NpuFfnOptions& options = {});

// All spans are fp32, of one size, and updated in place: var holds the parameters, m and v the moments, s the average
// of var; grad becomes 0. This is MindSpeed's mode 1 (AdamW) with bias_correction, its defaults; they cannot be
// changed.
void npu_apply_fused_ema_adamw(Context& context, std::span<float> grad, std::span<float> var, std::span<float> m,
                               std::span<float> v, std::span<float> s, int64_t step, double lr = 1e-3,
                               double ema_decay = 0.9999, double beta1 = 0.9, double beta2 = 0.999, double eps = 1e-8,
                               double weight_decay = 0);

}  // namespace ms::ops
