#include "train/ops/mindspeed.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(parts...));
}

}  // namespace

Tensor npu_rms_norm(Context& context, const TensorView& x, const TensorView& gamma, double epsilon, Tensor* rstd) {
  return rms_norm(context, x, gamma, {epsilon}, rstd);
}

Tensor npu_swiglu(Context& context, const TensorView& x) { return gated_activation(context, Activation::kSilu, x); }

DropoutAddNormResult npu_dropout_add_layer_norm(Context& context, const DropoutAddNormInputs& inputs,
                                                DropoutAddNormParams params) {
  params.kind = NormKind::kLayerNorm;
  return dropout_add_norm(context, inputs, params);
}

DropoutAddNormResult npu_dropout_add_rms_norm(Context& context, const DropoutAddNormInputs& inputs,
                                              DropoutAddNormParams params) {
  params.kind = NormKind::kRmsNorm;
  return dropout_add_norm(context, inputs, params);
}

FusionAttentionResult npu_fusion_attention(Context& context, const TensorView& query, const TensorView& key,
                                           const TensorView& value, const FusionAttentionParams& params) {
  return fusion_attention(context, query, key, value, params);
}

FusionAttentionResult npu_ring_attention_update(Context& context, const PartialAttention& prev,
                                                const PartialAttention& cur, std::span<const int64_t> actual_seq_qlen,
                                                AttentionLayout layout) {
  return ring_attention_update(context, prev, cur, layout, actual_seq_qlen);
}

PermutedTokens npu_fused_moe_token_permute(Context& context, const TensorView& tokens, const TensorView& indices,
                                           std::optional<int64_t> num_out_tokens, bool padded_mode) {
  return token_permute(context, tokens, indices, num_out_tokens, padded_mode);
}

Tensor npu_fused_moe_token_unpermute(Context& context, const TensorView& permuted_tokens,
                                     const TensorView& sorted_indices, const TensorView* probs, bool padded_mode,
                                     const core::Dims& restore_shape) {
  if (padded_mode) {
    if (restore_shape.size() != 2 || restore_shape[1] != permuted_tokens.dim(-1)) {
      refuse("token_unpermute: restore_shape ", core::cat(restore_shape), " of rows ",
             core::cat(permuted_tokens.shape()));
    }
    return token_unpermute(context, permuted_tokens, sorted_indices, probs, restore_shape[0], true);
  }
  if (!restore_shape.empty()) refuse("token_unpermute: restore_shape is of padded mode");
  const int64_t num_tokens = probs != nullptr ? probs->dim(0) : sorted_indices.size();
  return token_unpermute(context, permuted_tokens, sorted_indices, probs, num_tokens);
}

Tensor npu_gmm(Context& context, const TensorView& x, const TensorView& weight, const TensorView* bias,
               std::span<const int64_t> group_list, int group_type, bool gemm_fusion, const TensorView* main_grad) {
  if (group_type != 0 && group_type != 2) refuse("gmm: group_type ", group_type, "; it may be 0 or 2");
  if (gemm_fusion != (main_grad != nullptr) || (gemm_fusion && group_type == 0)) {
    refuse("gmm: gemm_fusion adds a weight's gradient, group_type 2, to a main_grad");
  }
  if (group_type == 0) return grouped_matmul(context, x, weight, group_list, GroupedWeight::kInOut, bias);
  if (bias != nullptr) refuse("gmm: group_type 2 takes no bias");
  if (!gemm_fusion) return grouped_matmul_wgrad(context, x, weight, group_list, GroupedWeight::kInOut);
  grouped_matmul_add_fp32(context, x, weight, group_list, *main_grad, GroupedWeight::kInOut);
  return {};
}

Tensor npu_gmm_v2(Context& context, const TensorView& x, const TensorView& weight, const TensorView* bias,
                  std::span<const int64_t> group_list, int group_type, bool gemm_fusion, const TensorView* main_grad) {
  return npu_gmm(context, x, weight, bias, group_ends(group_list), group_type, gemm_fusion, main_grad);
}

void npu_matmul_add_fp32(Context& context, const TensorView& total_input, const TensorView& grad_output,
                         const TensorView& main_grad) {
  linear_wgrad(context, total_input, grad_output, main_grad);
}

void npu_groupmatmul_add_fp32(Context& context, const TensorView& x, const TensorView& dy,
                              std::span<const int64_t> group_list, const TensorView& main_grad) {
  grouped_matmul_add_fp32(context, x, dy, group_list, main_grad, GroupedWeight::kInOut);
}

Tensor npu_quant_gmm(Context& context, const TensorView& x, const TensorView& weight, const TensorView& scale,
                     const TensorView* per_token_scale, const TensorView* bias, std::span<const int64_t> group_list,
                     core::DType output_dtype, int act_type) {
  QuantGmmParams params{per_token_scale, bias, output_dtype, {}};
  switch (act_type) {
    case 0:
      break;
    case 1:
      params.activation = Activation::kRelu;
      break;
    case 2:
      params.activation = Activation::kGeluTanh;
      break;
    case 4:
      params.activation = Activation::kFastGelu;
      break;
    case 5:
      params.activation = Activation::kSilu;
      break;
    default:
      refuse("quant_gmm: act_type ", act_type, "; it may be 0, 1, 2, 4 or 5");
  }
  return quant_gmm(context, x, weight, scale, group_list, params);
}

Tensor npu_quant_gmm_v2(Context& context, const TensorView& x, const TensorView& weight, const TensorView& scale,
                        const TensorView* per_token_scale, const TensorView* bias, std::span<const int64_t> group_list,
                        core::DType output_dtype, int act_type) {
  return npu_quant_gmm(context, x, weight, scale, per_token_scale, bias, group_ends(group_list), output_dtype,
                       act_type);
}

Tensor npu_weight_quant_gmm(Context& context, const TensorView& x, const TensorView& weight,
                            const TensorView& antiquant_scale, const TensorView* antiquant_offset,
                            const TensorView* bias, std::span<const int64_t> group_list) {
  return weight_quant_gmm(context, x, weight, {antiquant_scale, antiquant_offset}, group_list, bias);
}

Tensor npu_weight_quant_gmm_v2(Context& context, const TensorView& x, const TensorView& weight,
                               const TensorView& antiquant_scale, const TensorView* antiquant_offset,
                               const TensorView* bias, std::span<const int64_t> group_list) {
  return npu_weight_quant_gmm(context, x, weight, antiquant_scale, antiquant_offset, bias, group_ends(group_list));
}

namespace {

FfnActivation ffn_activation(std::string_view name) {
  struct Named {
    std::string_view name;
    FfnActivation activation;
  };
  static constexpr Named kNames[] = {
      {"fastgelu", {Activation::kFastGelu, false}}, {"gelu", {Activation::kGelu, false}},
      {"relu", {Activation::kRelu, false}},         {"silu", {Activation::kSilu, false}},
      {"geglu", {Activation::kGelu, true}},         {"swiglu", {Activation::kSilu, true}},
      {"reglu", {Activation::kRelu, true}},
  };
  for (const Named& named : kNames) {
    if (named.name == name) return named.activation;
  }
  refuse("ffn: no activation ", name);
}

// An optional argument with the experts' axis that our operators require; MindSpeed omits it when there are no experts.
// one_for_all: a single number applies to the whole matrix.
class OfExperts {
 public:
  OfExperts(const TensorView* given, bool has_axis, bool one_for_all) : given_(given != nullptr) {
    if (!given_) return;
    view_ = *given;
    if (has_axis || (one_for_all && view_.size() == 1)) return;
    core::Dims shape = view_.shape();
    shape.insert(shape.begin(), 1);
    view_ = view_.reshaped(shape);
  }
  const TensorView* get() const { return given_ ? &view_ : nullptr; }
  const TensorView& needed(const char* name) const {
    if (!given_) refuse("ffn: no ", name);
    return view_;
  }

 private:
  bool given_;
  TensorView view_;
};

}  // namespace

Tensor npu_ffn(Context& context, const TensorView& x, const TensorView& weight1, const TensorView& weight2,
               std::string_view activation, const NpuFfnOptions& options) {
  const FfnActivation chosen = ffn_activation(activation);
  const bool has_experts = weight1.shape().size() == 3;
  if (x.shape().size() < 2 || weight1.shape().size() != weight2.shape().size() || weight1.shape().size() < 2) {
    refuse("ffn: x is ", x.shape(), ", weights ", weight1.shape(), " and ", weight2.shape());
  }
  if (!options.expert_tokens.empty() && !options.expert_tokens_index.empty()) {
    refuse("ffn: both expert_tokens and expert_tokens_index");
  }
  const TensorView rows = x.reshaped({x.size() / std::max<int64_t>(1, x.dim(-1)), x.dim(-1)});
  std::vector<int64_t> ends = {rows.dim(0)};
  if (!options.expert_tokens.empty()) ends = group_ends(options.expert_tokens);
  if (!options.expert_tokens_index.empty()) {
    ends.assign(options.expert_tokens_index.begin(), options.expert_tokens_index.end());
  }
  const auto of = [&](const TensorView* given) { return OfExperts(given, has_experts, false); };
  const auto scale_of = [&](const TensorView* given) { return OfExperts(given, has_experts, true); };
  const bool quantised = x.dtype() == core::DType::kInt8;
  std::array<Tensor, 2> rounded;
  const auto bias = [&](const TensorView* given, size_t index) {
    if (given == nullptr || quantised || given->dtype() == x.dtype()) return of(given);
    rounded[index] = cast(context, *given, x.dtype());
    return of(&rounded[index].view());
  };
  const OfExperts w1 = of(&weight1), w2 = of(&weight2), b1 = bias(options.bias1, 0), b2 = bias(options.bias2, 1);
  const bool has_scales = options.scale != nullptr || options.offset != nullptr || options.deq_scale1 != nullptr ||
                          options.deq_scale2 != nullptr;
  const bool has_antiquant = options.antiquant_scale1 != nullptr || options.antiquant_scale2 != nullptr ||
                             options.antiquant_offset1 != nullptr || options.antiquant_offset2 != nullptr;
  if (has_scales != quantised || (has_antiquant && quantised)) {
    refuse("ffn: scale, offset and deq_scale are of an int8 x, antiquant of a real one; x is ",
           core::dtype_name(x.dtype()));
  }
  Tensor y;
  if (quantised) {
    Tensor real1, real2;
    const auto fp32 = [&](const OfExperts& scale, const char* name, Tensor& holder) -> TensorView {
      if (scale.needed(name).dtype() == core::DType::kFp32) return *scale.get();
      holder = cast(context, *scale.get(), core::DType::kFp32);
      return holder;
    };
    const OfExperts scale = scale_of(options.scale), offset = scale_of(options.offset);
    y = quant_ffn(context, rows, *w1.get(), *w2.get(), ends, chosen,
                  {.deq_scale1 = fp32(of(options.deq_scale1), "deq_scale1", real1),
                   .scale = scale.needed("scale"),
                   .offset = offset.get(),
                   .deq_scale2 = fp32(of(options.deq_scale2), "deq_scale2", real2),
                   .output_dtype = options.output_dtype},
                  b1.get(), b2.get());
  } else if (has_antiquant) {
    const OfExperts scale1 = scale_of(options.antiquant_scale1), scale2 = scale_of(options.antiquant_scale2);
    const OfExperts offset1 = scale_of(options.antiquant_offset1), offset2 = scale_of(options.antiquant_offset2);
    y = weight_quant_ffn(context, rows, *w1.get(), *w2.get(), ends, chosen,
                         {scale1.needed("antiquant_scale1"), offset1.get()},
                         {scale2.needed("antiquant_scale2"), offset2.get()}, b1.get(), b2.get());
  } else {
    y = ffn(context, rows, *w1.get(), *w2.get(), ends, chosen, b1.get(), b2.get());
  }
  core::Dims shape = x.shape();
  shape.back() = y.dim(-1);
  y.reshape(shape);
  return y;
}

void npu_apply_fused_ema_adamw(Context& context, std::span<float> grad, std::span<float> var, std::span<float> m,
                               std::span<float> v, std::span<float> s, int64_t step, double lr, double ema_decay,
                               double beta1, double beta2, double eps, double weight_decay) {
  adamw(context, var, grad, m, v,
        {.lr = lr,
         .beta1 = beta1,
         .beta2 = beta2,
         .eps = eps,
         .weight_decay = weight_decay,
         .step = step,
         .ema_decay = ema_decay},
        {}, s);
}

}  // namespace ms::ops
