// Sums, copies and conversions. fp32 or bf16 unless stated otherwise; arithmetic in fp32. All operands of a call have
// the same size.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns a + b; both have the same dtype.
core::Tensor add(Context& context, const core::TensorView& a, const core::TensorView& b);
// a += b; both have the same dtype.
void add_inplace(Context& context, const core::TensorView& a, const core::TensorView& b);

// Returns x converted to dtype (a copy if it has that dtype already). bf16 rounds to nearest even. fp32, bf16, fp16.
core::Tensor cast(Context& context, const core::TensorView& x, core::DType dtype);
void cast_into(Context& context, const core::TensorView& x, const core::TensorView& out);

// sum (fp32) += x.
void accumulate_fp32(Context& context, const core::TensorView& sum, const core::TensorView& x);
// x *= factor.
void scale_inplace(Context& context, const core::TensorView& x, float factor);
// Sets all bytes to zero; any dtype.
void fill_zero(Context& context, const core::TensorView& x);

}  // namespace ms::ops
