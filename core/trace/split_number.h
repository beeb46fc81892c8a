// Encodes times of the trace file as a byte with a number's magnitude, which compresses well, and separately its low
// bits, which are noise and are packed uncompressed.
//
//   byte = sign << 7 | (2 * low_bits + (magnitude >> low_bits)), low_bits = max(0, bit width of the magnitude - 2)
//
// The low bits of consecutive numbers fill bytes from the least significant bit on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

namespace ms::core::trace {

inline int low_bits_of(uint64_t magnitude) { return std::max(0, static_cast<int>(std::bit_width(magnitude)) - 2); }

class SplitWriter {
 public:
  void put(int64_t value) {
    const bool negative = value < 0;
    const uint64_t magnitude = negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
    const int low = low_bits_of(magnitude);
    sizes_.push_back(static_cast<char>((negative ? 0x80 : 0) | (2 * low + static_cast<int>(magnitude >> low))));
    put_bits(magnitude, low);
  }
  const std::string& sizes() const { return sizes_; }
  const std::string& bits() const { return bits_; }

 private:
  void put_bits(uint64_t value, int count) {
    while (count > 0) {
      if (used_ == 0) bits_.push_back(0);
      const int taken = std::min(count, 8 - used_);
      bits_.back() = static_cast<char>(static_cast<uint8_t>(bits_.back()) | (value & ((1u << taken) - 1)) << used_);
      value >>= taken;
      count -= taken;
      used_ = (used_ + taken) % 8;
    }
  }
  std::string sizes_, bits_;
  int used_ = 0;  // bits of the last byte
};

}  // namespace ms::core::trace
