// The second operand of a product, packed once for many calls, such as a weight between two updates. The "packed",
// "bf16_dot" and "amx" implementations of gemm.h read it. GemmProblem::packed_b is given beside the plain operand,
// which the other implementations use. With the same implementation, the bits of C are the same with and without it.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/gemm/gemm.h"

namespace ms::kernels {

// Which implementation reads it. A 32-bit word holds one element converted to fp32, or two bf16 elements along k.
enum class PackedFormat : uint8_t { kFp32, kBf16Pairs, kAmx };

struct PackedOperand {
  PackedFormat format = PackedFormat::kFp32;
  int64_t n = 0, k = 0;          // of the whole operand
  const float* words = nullptr;  // packed_words(format, n, k) words, 64-byte aligned; not owned
};

// The format that gemm reads if both operands have this type, without falling back on a library. None if no
// implementation reads one: without vector registers.
std::optional<PackedFormat> packed_format(GemmType type, bool deterministic);

// Columns per packed strip, a multiple of every register tile's width. Strips are independent, so threads can share the
// packing.
inline constexpr int64_t kPackedStrip = 32;
constexpr int64_t packed_strips(int64_t n) { return (n + kPackedStrip - 1) / kPackedStrip; }

// 32-bit words per column, and of the whole packed operand.
constexpr int64_t packed_column_words(PackedFormat format, int64_t k) {
  if (format == PackedFormat::kAmx) return (k + 31) / 32 * 16;
  return format == PackedFormat::kBf16Pairs ? (k + 1) / 2 : k;
}
constexpr int64_t packed_words(PackedFormat format, int64_t n, int64_t k) {
  return packed_strips(n) * kPackedStrip * packed_column_words(format, k);
}

// Packs strips [begin, end) of problem's B (reads b, b_type, ldb, transpose_b, n and k only) into `words`, the buffer
// of the whole operand. kBf16Pairs and kAmx require bf16, and that packed_format returns them.
void pack_operand(PackedFormat format, const GemmProblem& problem, int64_t begin, int64_t end, float* words);

}  // namespace ms::kernels
