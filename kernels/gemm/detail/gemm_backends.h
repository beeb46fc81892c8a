// The implementations listed by gemm_implementations(); kernels/gemm/gemm.h describes each.
#pragma once

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/gemm/gemm.h"

namespace ms::kernels {

extern const GemmImplementation kGemmAmx;      // gemm_amx.cpp
extern const GemmImplementation kGemmBf16Dot;  // gemm_bf16_dot.cpp
extern const GemmImplementation kGemmPacked;   // gemm_packed.cpp
extern const GemmImplementation kGemmSkinny;   // gemm_packed.cpp
extern const GemmImplementation kGemmEigen;    // gemm_eigen.cpp
extern const GemmImplementation kGemmNaive;    // gemm_naive.cpp
#if MS_WITH_ONEDNN
extern const GemmImplementation kGemmOnednn;      // gemm_onednn.cpp
extern const GemmImplementation kGemmOnednnBf16;  // gemm_onednn.cpp
int64_t onednn_primitives_created();              // in this process so far
#endif

// Reason to decline GemmProblem::deterministic, for implementations whose blocking depends on the shape of C.
inline constexpr std::string_view kDependsOnSplit = "its sums depend on how C is split over threads";

// Reason to leave a product to "packed", for implementations that read B in place or pack it themselves.
inline constexpr std::string_view kIsPacked = "the second operand is packed";

// For packed_operand.h: whether "bf16_dot" takes bf16 operands; packing of strips [begin, end) of problem's B into
// words.
bool bf16_dot_takes_bf16(bool deterministic);
void pack_amx_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words);       // gemm_amx.cpp
void pack_bf16_dot_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words);  // gemm_bf16_dot.cpp
void pack_fp32_operand(const GemmProblem& problem, int64_t begin, int64_t end, float* words);      // gemm_packed.cpp

// Applies the epilogue and rounding to rows [row, row + rows) of C. sums: fp32 or C's type, rows `ld` elements apart
// (0: one row for all); may be C itself. In gemm_packed.cpp.
void finish_gemm(const GemmProblem& problem, int64_t row, int64_t rows, const void* sums, GemmType type, int64_t ld);

// Element `index` of an operand as fp32, for implementations that are not templates of its type.
inline float gemm_element(const void* matrix, GemmType type, int64_t index) {
  switch (type) {
    case GemmType::kBf16:
      return static_cast<float>(static_cast<const bf16*>(matrix)[index]);
    case GemmType::kFp16:
      return static_cast<float>(static_cast<const fp16*>(matrix)[index]);
    case GemmType::kFp32:
      break;
  }
  return static_cast<const float*>(matrix)[index];
}

}  // namespace ms::kernels
