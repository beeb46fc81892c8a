#include "core/rng.h"

#include <cmath>
#include <numbers>

#include "kernels/philox.h"

namespace ms::core {
namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

Rng::Rng(uint64_t seed, std::string_view stream) : seed_(seed), stream_(fnv1a(stream)) {}

std::array<uint32_t, 4> Rng::block(uint64_t index) const {
  return kernels::philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                 static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                                {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
}

uint64_t Rng::bits(uint64_t index) const {
  const auto words = block(index);
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

double Rng::uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }

float Rng::normal(uint64_t index) const {
  const auto words = block(index);
  const double u1 = (static_cast<double>(words[0]) + 0.5) * 0x1.0p-32;  // never 0
  const double u2 = static_cast<double>(words[1]) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2));
}

uint64_t Rng::below(uint64_t index, uint64_t bound) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

}  // namespace ms::core
