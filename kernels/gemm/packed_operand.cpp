#include "kernels/gemm/packed_operand.h"

#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/isa.h"

namespace ms::kernels {

std::optional<PackedFormat> packed_format(GemmType type, bool deterministic) {
  if (active_isa() == Isa::kScalar) return std::nullopt;
  if (type == GemmType::kBf16) {
    if (active_isa() == Isa::kAmx) return PackedFormat::kAmx;
    if (bf16_dot_takes_bf16(deterministic)) return PackedFormat::kBf16Pairs;
  }
  return PackedFormat::kFp32;
}

void pack_operand(PackedFormat format, const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  switch (format) {
    case PackedFormat::kAmx:
      return pack_amx_operand(problem, begin, end, words);
    case PackedFormat::kBf16Pairs:
      return pack_bf16_dot_operand(problem, begin, end, words);
    case PackedFormat::kFp32:
      return pack_fp32_operand(problem, begin, end, words);
  }
}

}  // namespace ms::kernels
