// Conversion between storage types, n elements; narrowing rounds to nearest even, NaN stays NaN (quiet).
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/stores.h"

namespace ms::kernels {

void convert(const float* source, bf16* target, int64_t n, Stores stores = Stores::kCached);
void convert(const bf16* source, float* target, int64_t n, Stores stores = Stores::kCached);
void convert(const float* source, fp16* target, int64_t n, Stores stores = Stores::kCached);
void convert(const fp16* source, float* target, int64_t n, Stores stores = Stores::kCached);
void convert(const bf16* source, fp16* target, int64_t n, Stores stores = Stores::kCached);
void convert(const fp16* source, bf16* target, int64_t n, Stores stores = Stores::kCached);

}  // namespace ms::kernels
