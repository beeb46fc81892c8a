#include "train/data/detail/numpy_random.h"

#include <array>
#include <bit>
#include <utility>

#include "core/error.h"

namespace ms::train::detail {

NumpyRandomState::NumpyRandomState(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {
  if (seed > UINT32_MAX) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("--seed ", seed, ": the data order takes seeds from 0 to 4294967295"));
  }
}

uint64_t NumpyRandomState::interval(uint64_t last) {
  if (last == 0) return 0;  // no draw
  uint64_t mask = last;
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  for (;;) {
    uint64_t value = engine_();
    if (last > UINT32_MAX) value = value << 32 | engine_();
    value &= mask;
    if (value <= last) return value;
  }
}

void NumpyRandomState::shuffle(std::span<int64_t> values, Patience patience) {
  for (size_t i = values.size(); i-- > 1;) {
    patience.step();
    std::swap(values[i], values[interval(i)]);
  }
}

namespace {

constexpr int kXShift = 16;
constexpr uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875, kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
constexpr uint32_t kMixMultL = 0xca01f9dd, kMixMultR = 0x4973f715;

uint32_t hash_mix(uint32_t value, uint32_t& constant, uint32_t multiplier) {
  value ^= constant;
  constant *= multiplier;
  value *= constant;
  return value ^ value >> kXShift;
}

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t value = kMixMultL * x - kMixMultR * y;
  return value ^ value >> kXShift;
}

// SeedSequence(seed).generate_state(4, uint64).
std::array<uint64_t, 4> seed_state(uint32_t seed) {
  std::array<uint32_t, 4> pool{};
  uint32_t constant = kInitA;
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash_mix(i == 0 ? seed : 0, constant, kMultA);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], hash_mix(pool[from], constant, kMultA));
    }
  }
  std::array<uint64_t, 4> state{};
  constant = kInitB;
  for (size_t i = 0; i < 2 * state.size(); ++i) {
    const uint64_t half = hash_mix(pool[i % pool.size()], constant, kMultB);
    state[i / 2] |= half << (i % 2 * 32);
  }
  return state;
}

unsigned __int128 join(uint64_t high, uint64_t low) { return static_cast<unsigned __int128>(high) << 64 | low; }

}  // namespace

NumpyGenerator::NumpyGenerator(uint32_t seed) {
  const std::array<uint64_t, 4> state = seed_state(seed);
  increment_ = join(state[2], state[3]) << 1 | 1;
  step();
  state_ += join(state[0], state[1]);
  step();
}

void NumpyGenerator::step() { state_ = state_ * join(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_; }

uint64_t NumpyGenerator::next64() {
  step();
  return std::rotr(static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_),
                   static_cast<int>(state_ >> 122));
}

uint32_t NumpyGenerator::next32() {
  if (upper_half_) return *std::exchange(upper_half_, std::nullopt);
  const uint64_t both = next64();
  upper_half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

uint32_t NumpyGenerator::bounded(uint32_t last) {
  const uint32_t values = last + 1;
  uint64_t product = uint64_t{next32()} * values;
  if (static_cast<uint32_t>(product) < values) {
    const uint32_t threshold = (UINT32_MAX - last) % values;
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next32()} * values;
  }
  return static_cast<uint32_t>(product >> 32);
}

}  // namespace ms::train::detail
