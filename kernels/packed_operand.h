// The second operand of a product, packed once for many calls as "tiles", "dots" and "amx" of gemm.h read it: a weight
// between two updates. GemmProblem::packed_b takes it beside the plain operand, which implementations that cannot read
// it use. The bits of C are the same with it and without, where the same implementation computes.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/gemm.h"

namespace ms::kernels {

// Who reads it; a word holds a term of k converted to fp32, or two of bf16.
enum class PackedFormat : uint8_t { kTiles, kDots, kAmx };

struct PackedOperand {
  PackedFormat format = PackedFormat::kTiles;
  int64_t n = 0, k = 0;          // of the whole operand
  const float* words = nullptr;  // packed_words(format, n, k) of them, 64-byte aligned; not owned
};

// The format that gemm reads where both operands are of this type and it need not fall back on a library. None where
// it would read none: without vector registers.
std::optional<PackedFormat> packed_format(GemmType type, bool any_split);

// Columns are packed in strips of so many, a multiple of every register tile's. Strips are independent: threads share
// them.
inline constexpr int64_t kPackedStrip = 32;
constexpr int64_t packed_strips(int64_t n) { return (n + kPackedStrip - 1) / kPackedStrip; }

// 32-bit words of a column, and of the whole, of a packed operand.
constexpr int64_t packed_column_words(PackedFormat format, int64_t k) {
  if (format == PackedFormat::kAmx) return (k + 31) / 32 * 16;
  return format == PackedFormat::kDots ? (k + 1) / 2 : k;
}
constexpr int64_t packed_words(PackedFormat format, int64_t n, int64_t k) {
  return packed_strips(n) * kPackedStrip * packed_column_words(format, k);
}

// Packs strips [begin, end) of problem's B (b, b_type, ldb, transpose_b, n and k; the rest is not read) into `words`,
// which hold all of it. kDots and kAmx are of bf16, and only where packed_format says so.
void pack_operand(PackedFormat format, const GemmProblem& problem, int64_t begin, int64_t end, float* words);

}  // namespace ms::kernels
