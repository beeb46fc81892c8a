// Dropout, residual add and norm in one pass (MindSpeed's npu_dropout_add_layer_norm and npu_dropout_add_rms_norm):
//
//   z = drop(x0 * rowscale * layerscale) + residual,  y = norm(z) * weight + bias
//
// x0 is [s, b, h] (or [b, s, h]: only `samples` depends on it), fp32, bf16 or fp16; weight, bias, rowscale and
// layerscale have its dtype. z is the new residual stream; it has the residual's dtype (x0's, or fp32), or without a
// residual x0's, or fp32 with residual_in_fp32. It is rounded before the norm, so that without dropout and scales y and
// z are bitwise equal to add followed by rms_norm or layer_norm. Statistics are fp32.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/dropout.h"
#include "train/ops/norm.h"

namespace ms::ops {

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

struct DropoutAddNormInputs {
  core::TensorView x0;                           // [s, b, h]
  core::TensorView weight;                       // [h]
  const core::TensorView* residual = nullptr;    // [s, b, h]
  const core::TensorView* bias = nullptr;        // [h]
  const core::TensorView* rowscale = nullptr;    // [s, b]
  const core::TensorView* layerscale = nullptr;  // [h]
};

struct DropoutAddNormParams {
  NormKind kind = NormKind::kLayerNorm;
  NormParams norm;
  Dropout dropout;
  std::span<const int64_t> samples;  // of the second axis, for dropout masks (train/ops/dropout.h)
  int64_t first_position = 0;        // position of row 0 of the first axis, for dropout
  bool residual_in_fp32 = false;     // only without a residual
  bool return_dropout_mask = false;
};

struct DropoutAddNormResult {
  core::Tensor y;             // shape and dtype of x0
  core::Tensor z;             // MindSpeed's prenorm output, and what backward needs
  core::Tensor mask;          // uint8, shape of x0, 1: kept; only with return_dropout_mask
  NormStatistics statistics;  // of z
};

// Throws kInvalidArgument if residual_in_fp32 is set and the residual is not fp32.
DropoutAddNormResult dropout_add_norm(Context& context, const DropoutAddNormInputs& inputs,
                                      const DropoutAddNormParams& params);

// Tensors to which the gradients of the parameters are added, fp32 [h]; null: not computed.
struct DropoutAddNormSums {
  const core::TensorView* dweight = nullptr;
  const core::TensorView* dbias = nullptr;
  const core::TensorView* dlayerscale = nullptr;
};

struct DropoutAddNormGradients {
  core::Tensor dx0;        // shape and dtype of x0
  core::Tensor dresidual;  // of z; undefined without a residual
  core::Tensor drowscale;  // fp32 [s, b]; undefined without a rowscale
};

// dz = norm's gradient of dy (+ dz_prenorm, the gradient of the residual stream past the norm, dtype of z; may be
// null); dresidual = dz, dx0 = dz * mask / (1 - p) * scales. inputs, params: the same as in forward; the mask is
// computed again, not stored.
DropoutAddNormGradients dropout_add_norm_backward(Context& context, const core::TensorView& dy,
                                                  const core::TensorView* dz_prenorm,
                                                  const DropoutAddNormInputs& inputs,
                                                  const DropoutAddNormResult& forward,
                                                  const DropoutAddNormParams& params, const DropoutAddNormSums& sums);

}  // namespace ms::ops
