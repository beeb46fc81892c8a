// C = op(A) * op(B), or C += op(A) * op(B): the product behind every linear layer. Row-major; fp32, bf16 or fp16
// storage; fp32 sums.
//
// Several implementations form an ordered list that ends in the portable one. Each may decline a problem and returns
// the reason (gemm_implementations, for --log-level debug). gemm starts no thread: callers give each thread a range of
// C's rows or columns (as train/ops/linear.h does).
//
//   amx          ours: bf16 x bf16 on AMX tiles, packed panels, for C with 16 rows or more. Denormal operands and sums
//                count as 0, whatever the thread's mode
//   bf16_dot     ours: bf16 x bf16 by AVX512_BF16 dot products, if measured to be faster than fp32 (roofline.h)
//   onednn_bf16  oneDNN: bf16 x bf16 with few rows, under the same conditions; each thread keeps a primitive per shape
//   skinny       ours: 16 to 64 rows (such as one expert's tokens), or 8 to 64 if B is stored [k, n]; B is read in
//                place because packing it would cost as much as the product
//   onednn       oneDNN: fp32 dnnl_sgemm for fewer than 8 rows, and for all where our code has no vectors. Each call
//                allocates 72 KiB, or 1 to 10 MiB if it packs an operand
//   packed       ours: packed panels, register tiles; 16-bit types are converted while packing
//   eigen        fp32; 16-bit types through a converted copy
//   naive        three loops
//
// amx, bf16_dot, skinny, packed and naive sum every element of C in one fixed order, whatever part of C a call
// computes, so splitting C over more or fewer threads changes no bit; skinny and packed share the same order. The
// others choose blocks by shape, and decline problems that require this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/activation.h"

namespace ms::kernels {

enum class GemmType : uint8_t { kFp32, kBf16, kFp16 };
constexpr int64_t gemm_type_bytes(GemmType type) { return type == GemmType::kFp32 ? 4 : 2; }

struct PackedOperand;  // kernels/gemm/packed_operand.h

// Applied to complete sums: c = act(sum + bias) + residual, in fp32 and rounded once (onednn_bf16 first rounds the sum
// to C's type). Gated activations are not supported: they combine two columns of C into one.
struct GemmEpilogue {
  const void* bias = nullptr;  // [n], in C's type
  std::optional<Activation> activation;
  const void* residual = nullptr;  // [m, n], in C's type; must not overlap C
  int64_t ld_residual = 0;
  bool any() const { return bias != nullptr || activation || residual != nullptr; }
};

struct GemmProblem {
  bool transpose_a = false;  // A is stored [k, m] instead of [m, k]
  bool transpose_b = false;  // B is stored [n, k] instead of [k, n]
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  GemmType a_type = GemmType::kFp32;
  int64_t lda = 0;  // elements between rows of A as stored
  const void* b = nullptr;
  GemmType b_type = GemmType::kFp32;
  int64_t ldb = 0;
  const PackedOperand* packed_b = nullptr;  // B in packed form, for implementations that read it; not owned
  int64_t packed_column = 0;                // column of packed_b where B begins; a multiple of 32
  bool accumulate = false;                  // C += instead of C =; requires an fp32 C
  bool deterministic = false;               // the bits of C must not depend on how callers split it
  void* c = nullptr;
  GemmType c_type = GemmType::kFp32;
  int64_t ldc = 0;
  GemmEpilogue epilogue;  // not with accumulate
};

struct GemmImplementation {
  std::string_view name;
  // Why this implementation declines the problem; empty if it takes it.
  std::string_view (*declines)(const GemmProblem& problem);
  // Call only for problems it does not decline.
  void (*run)(const GemmProblem& problem);
};

// In order of preference. The last one takes every valid problem.
std::span<const GemmImplementation* const> gemm_implementations();

// The first implementation that does not decline.
const GemmImplementation& choose_gemm(const GemmProblem& problem);

// Computes C with choose_gemm. m, n or k may be 0; with k = 0, C is the epilogue of zeros, or unchanged with
// accumulate. Each thread keeps packing buffers: up to 4 MiB (plus 12 MiB of sums for a 16-bit C; m * n * 4 bytes for
// few rows; 24 MiB with amx). Throws std::invalid_argument if accumulate is combined with a 16-bit C or an epilogue, or
// bf16 with fp16.
void gemm(const GemmProblem& problem);

// Library primitives that gemm has created in this process: one per shape and thread, at the first call.
int64_t gemm_primitives_created();

}  // namespace ms::kernels
