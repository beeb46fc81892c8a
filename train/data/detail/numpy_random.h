// The parts of numpy.random that data sets need. RandomState(seed), for shuffling: MT19937 seeded by init_genrand, and
// the legacy bounded draw by masked rejection (numpy/random/src/distributions: random_interval). default_rng(seed), for
// --mock-data: PCG64 seeded by a SeedSequence, and Lemire's bounded draw.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "train/data/detail/patience.h"

namespace ms::train::detail {

class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint64_t seed);  // throws kInvalidArgument for seed >= 2^32, as numpy does
  uint64_t interval(uint64_t last);          // uniform in [0, last]
  void shuffle(std::span<int64_t> values, Patience patience = {});  // RandomState.shuffle of a 1-d array

 private:
  std::mt19937 engine_;  // the standard defines its seeding and output: those of the reference implementation
};

// numpy.random.default_rng(seed) for a seed below 2^32: integers(0, last + 1, dtype=int32) draws bounded(last).
// Source: numpy/random/bit_generator.pyx (SeedSequence), src/pcg64/pcg64.h, src/distributions/distributions.c
// (buffered_bounded_lemire_uint32).
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint32_t seed);
  uint64_t next64();
  uint32_t bounded(uint32_t last);  // uniform in [0, last]; last below 2^32 - 1

 private:
  uint32_t next32();  // the lower half of a draw of 64 bits, then its upper half
  void step();

  unsigned __int128 state_ = 0, increment_ = 0;
  std::optional<uint32_t> upper_half_;
};

}  // namespace ms::train::detail
