#include "kernels/checksum.h"

#include <xxhash.h>

#include <array>

#include "kernels/detail/xxh3.h"
#include "kernels/isa.h"

namespace ms::kernels {

uint64_t xxh3(const void* data, size_t size_bytes) {
#if defined(__x86_64__)
  if (active_isa() != Isa::kScalar) return detail::xxh3_avx2(data, size_bytes);
#endif
  return XXH3_64bits(data, size_bytes);
}

namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = value;
  }
  return table;
}

}  // namespace

uint32_t crc32c(const void* data, size_t size_bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t crc = ~0U;
  for (size_t i = 0; i < size_bytes; ++i) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<const unsigned char*>(data)[i]) & 0xff];
  }
  return ~crc;
}

}  // namespace ms::kernels
