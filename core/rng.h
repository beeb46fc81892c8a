// Counter-based random numbers: Philox4x32-10 (kernels/philox.h).
//
// A number is a pure function of (seed, stream, index). Any rank can generate any slice of a global tensor, and the
// result does not depend on the parallel layout. The seed is the only state to save.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ms::core {

class Rng {
 public:
  // stream: names what is drawn (a parameter's canonical name, "shuffle", ...); hashed.
  Rng(uint64_t seed, std::string_view stream);

  // A key derived from (seed, stream), for generators with their own counter (kernels/dropout.h).
  uint64_t key() const { return bits(~uint64_t{0}); }

  uint64_t bits(uint64_t index) const;   // uniform 64 bits
  double uniform(uint64_t index) const;  // [0, 1), 53 bits
  float normal(uint64_t index) const;    // mean 0, standard deviation 1 (Box-Muller)
  // Uniform in [0, bound), unbiased up to 2^-64 (multiply-shift); bound > 0.
  uint64_t below(uint64_t index, uint64_t bound) const;

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;
  uint64_t seed_;
  uint64_t stream_;
};

}  // namespace ms::core
