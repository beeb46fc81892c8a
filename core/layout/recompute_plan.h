// Which layers of a chunk keep their activations, by their number in it, whatever their count.
#pragma once

#include <cstdint>
#include <string>

namespace ms::layout {

class RecomputePlan {
 public:
  // granularity "" or "selective": keep all. "full" with method "block": the first num_layers layers are recomputed;
  // "uniform": all are, in groups of num_layers of which only the first layer's input is kept.
  explicit RecomputePlan(const std::string& granularity = "", const std::string& method = "", int64_t num_layers = 0);

  bool recomputes(int64_t layer) const { return layer < first_kept_; }
  // First of the layers that must be run again, up to `layer`, before the backward of `layer`.
  int64_t group_begin(int64_t layer) const { return layer / group_ * group_; }

 private:
  int64_t first_kept_ = 0;
  int64_t group_ = 1;
};

}  // namespace ms::layout
