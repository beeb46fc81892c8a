// Sums, copies and conversions. fp32 or bf16 unless said; arithmetic in fp32; operands of one call have equal sizes.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns a + b, of one dtype.
core::Tensor add(Context& context, const core::TensorView& a, const core::TensorView& b);
// a += b, of one dtype.
void add_inplace(Context& context, const core::TensorView& a, const core::TensorView& b);

// Returns x as dtype; a plain copy when it is that already. bf16 rounds to nearest even. fp32, bf16, fp16.
core::Tensor cast(Context& context, const core::TensorView& x, core::DType dtype);
void cast_into(Context& context, const core::TensorView& x, const core::TensorView& out);

// sum (fp32) += x.
void accumulate_fp32(Context& context, const core::TensorView& sum, const core::TensorView& x);
// x *= factor.
void scale_inplace(Context& context, const core::TensorView& x, float factor);
// All bits to zero; any dtype.
void fill_zero(Context& context, const core::TensorView& x);

}  // namespace ms::ops
