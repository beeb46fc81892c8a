#include "kernels/packed_operand.h"

#include "kernels/detail/gemm_backends.h"
#include "kernels/isa.h"

namespace ms::kernels {

std::optional<PackedFormat> packed_format(GemmType type, bool any_split) {
  if (active_isa() == Isa::kScalar) return std::nullopt;
  if (type == GemmType::kBf16) {
    if (dots_takes_bf16(any_split)) return PackedFormat::kDots;
#if MS_WITH_ONEDNN
    if (!any_split && onednn_uses_amx()) return std::nullopt;
#endif
  }
  return PackedFormat::kTiles;
}

void pack_operand(PackedFormat format, const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  if (format == PackedFormat::kDots) return pack_dots_operand(problem, begin, end, words);
  pack_tiles_operand(problem, begin, end, words);
}

}  // namespace ms::kernels
