#include "kernels/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // declares the layout of XXH3_state_t
#include <xxhash.h>

#include <array>
#include <cstddef>

#include "kernels/detail/xxh3.h"
#include "kernels/isa.h"

namespace ms::kernels {

uint64_t xxh3(const void* data, size_t size_bytes) {
#if defined(__x86_64__)
  if (active_isa() != Isa::kScalar) return detail::xxh3_avx2(data, size_bytes);
#endif
  return XXH3_64bits(data, size_bytes);
}

void xxh3_each(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes) {
#if defined(__x86_64__)
  if (active_isa() != Isa::kScalar) return detail::xxh3_each_avx2(data, piece_bytes, pieces, hashes);
#endif
  const auto* at = static_cast<const std::byte*>(data);
  for (size_t i = 0; i < pieces; ++i, at += piece_bytes) hashes[i] = XXH3_64bits(at, piece_bytes);
}

static_assert(sizeof(XXH3_state_t) <= sizeof(Xxh3) && alignof(XXH3_state_t) <= alignof(Xxh3));

Xxh3::Xxh3() : state_{} { XXH3_64bits_reset(reinterpret_cast<XXH3_state_t*>(state_.data())); }

void Xxh3::update(const void* data, size_t size_bytes) {
#if defined(__x86_64__)
  if (active_isa() != Isa::kScalar) return detail::xxh3_update_avx2(state_.data(), data, size_bytes);
#endif
  XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state_.data()), data, size_bytes);
}

uint64_t Xxh3::digest() const { return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data())); }

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
