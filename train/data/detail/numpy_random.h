// The part of numpy.random.RandomState(seed) that shuffling needs: MT19937 seeded by init_genrand, and the legacy
// bounded draw by masked rejection (numpy/random/src/distributions: random_interval).
#pragma once

#include <cstdint>
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

}  // namespace ms::train::detail
