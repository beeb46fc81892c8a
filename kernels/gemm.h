// C = op(A) * op(B), or C += it: the product behind every linear layer, row-major, fp32, bf16 or fp16 storage, fp32
// sums.
//
// Several implementations form an ordered list that ends in the portable one; each may decline a problem with a reason
// (gemm_implementations, for --log-level debug). gemm starts no thread: callers give each thread a range of C's rows or
// columns (train/ops/linear.h does).
//
//   amx          ours, bf16 x bf16 by AMX tiles, where C has 16 rows or more: packed panels. Denormal numbers count as
//                0, in operands and in sums, whatever the thread's mode
//   dots         the same by AVX512_BF16's dot products, where those are measured to be faster than fp32 (yardstick.h)
//   onednn_bf16  few rows of bf16 x bf16 where one of these takes more; each shape's primitive kept by the thread
//   thin         ours: 16 to 64 rows, as an expert's tokens are, or 8 where B is stored [k, n]; B is read as it lies,
//                since packing it would cost as much as multiplying with it
//   onednn       fp32, dnnl_sgemm: fewer than 8 rows, and all where our own code has no vectors. Takes a block from the
//                heap at each call: 72 KiB, or 1 to 10 MiB where it packs an operand
//   tiles        ours: packed panels, register tiles; 16-bit types are converted while packing
//   eigen        fp32, 16-bit types through a converted copy
//   naive        three loops
//
// amx, dots, thin, tiles and naive sum every element of C in one fixed order, whatever part of C a call computes:
// splitting C over more or fewer threads changes no bit, and thin and tiles have the same. The others choose their
// blocks by shape, and take no problem that asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/activation.h"

namespace ms::kernels {

enum class GemmType : uint8_t { kFp32, kBf16, kFp16 };
constexpr int64_t gemm_type_bytes(GemmType type) { return type == GemmType::kFp32 ? 4 : 2; }

struct PackedOperand;  // kernels/packed_operand.h

// What becomes of whole sums: c = act(sum + bias) + residual, in fp32 and rounded once; onednn_bf16 rounds the sum to
// C's type before. A gated activation is none of these: it takes two columns of C for one.
struct GemmEpilogue {
  const void* bias = nullptr;  // [n], of C's type
  std::optional<Activation> activation;
  const void* residual = nullptr;  // [m, n], of C's type; apart from C
  int64_t ld_residual = 0;
  bool there() const { return bias != nullptr || activation || residual != nullptr; }
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
  const PackedOperand* packed_b = nullptr;  // B once more, for those that can read it; not owned
  int64_t packed_column = 0;                // of packed_b, at which B begins; a multiple of 32
  bool accumulate = false;                  // C += instead of C =; with an fp32 C only
  bool any_split = false;                   // the bits of C may not depend on how callers split it
  void* c = nullptr;
  GemmType c_type = GemmType::kFp32;
  int64_t ldc = 0;
  GemmEpilogue epilogue;  // not with accumulate
};

struct GemmImplementation {
  std::string_view name;
  // Why this one does not take the problem; empty when it does.
  std::string_view (*declines)(const GemmProblem& problem);
  // Only for problems it does not decline.
  void (*run)(const GemmProblem& problem);
};

// In order of preference. The last takes every valid problem.
std::span<const GemmImplementation* const> gemm_implementations();

// The first that does not decline.
const GemmImplementation& choose_gemm(const GemmProblem& problem);

// Computes C with choose_gemm. m, n or k may be 0 (k = 0 gives the epilogue of zeros, or leaves C with accumulate).
// Keeps packing buffers per thread, up to 4 MiB (plus 12 MiB of sums for a 16-bit C; m * n * 4 of few rows; amx 24
// MiB). Throws std::invalid_argument if accumulate is asked of a 16-bit C or with an epilogue, or bf16 is mixed with
// fp16.
void gemm(const GemmProblem& problem);

// How many primitives of a library gemm has created in this process: one for each shape and thread, at its first call.
int64_t gemm_primitives_created();

}  // namespace ms::kernels
