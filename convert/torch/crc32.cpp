#include "convert/torch/crc32.h"

#include <isa-l/crc.h>

#include "core/error.h"

namespace ms::convert {
namespace {

// Polynomials modulo the CRC polynomial, bits reversed: the highest bit is the coefficient of 1.
constexpr uint32_t kPolynomial = 0xedb88320, kOne = 0x80000000, kX8 = kOne >> 8;

uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return sum;
}

// Returns x^(8 bytes). A CRC is multiplied by it when that many bytes follow.
uint32_t shift_factor(int64_t bytes) {
  uint32_t power = kOne, square = kX8;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) power = product(power, square);
    square = product(square, square);
  }
  return power;
}

}  // namespace

uint32_t crc32(uint32_t before, std::span<const std::byte> bytes) {
  return ::crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

void Crc32OfParts::add(int64_t offset, std::span<const std::byte> bytes) {
  const int64_t following = size_bytes_ - offset - static_cast<int64_t>(bytes.size());
  MS_CHECK(offset >= 0 && following >= 0, "bytes ", offset, " + ", bytes.size(), " of ", size_bytes_);
  // The part's CRC without zlib's inversions of the register at start and end.
  sum_ ^= product(~crc32(UINT32_MAX, bytes), shift_factor(following));
}

uint32_t Crc32OfParts::value() const { return ~(sum_ ^ product(UINT32_MAX, shift_factor(size_bytes_))); }

}  // namespace ms::convert
