#include "convert/megatron/master_weights.h"

#include <cstring>
#include <vector>

#include "ckpt/execute.h"

namespace ms::convert {

bool round_to_weights(std::span<const std::byte> masters, core::DType from, std::span<const std::byte> weights,
                      core::DType to) {
  const auto count = static_cast<int64_t>(weights.size()) / core::size_of(to);
  std::vector<std::byte> rounded(weights.size());
  ckpt::convert_elements(masters.data(), from, rounded.data(), to, count);
  if (std::memcmp(rounded.data(), weights.data(), weights.size()) == 0) return true;
  if (from != core::DType::kFp32 || to != core::DType::kBf16) return false;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t master = 0;
    uint16_t nearest = 0, weight = 0;
    std::memcpy(&master, masters.data() + 4 * i, 4);
    std::memcpy(&nearest, rounded.data() + 2 * i, 2);
    std::memcpy(&weight, weights.data() + 2 * i, 2);
    const bool halfway = (master & 0xffff) == 0x8000;
    if (weight != nearest && !(halfway && weight == (master >> 16) + 1)) return false;
  }
  return true;
}

}  // namespace ms::convert
