// C = A B for 8-bit integers, exact in 32 bits: the product behind quantised layers (train/ops/quantized_matmul.h).
#pragma once

#include <cstdint>

namespace ms::kernels {

// Largest k: the sum of more products could overflow 32 bits.
inline constexpr int64_t kMaxInt8Products = 131071;

// c[i * ldc + j] = sum over p < k of a[i * lda + p] * b[p * ldb + j], for m rows and n columns; k <= kMaxInt8Products.
// All code paths (VNNI where the CPU has it, 16-bit multiply-adds on AVX2, plain loops) give the same sums. Packs 64
// columns of B at a time into 64 k bytes (128 k without VNNI), kept per thread; starts no thread.
void int8_gemm(int64_t m, int64_t n, int64_t k, const int8_t* a, int64_t lda, const int8_t* b, int64_t ldb, int32_t* c,
               int64_t ldc);

// Code path that int8_gemm uses: "vnni", "avx2" or "scalar".
const char* int8_gemm_name();

}  // namespace ms::kernels
