// Body of fp32_halves.h.

#include "kernels/impl/halves.inl"

inline void split_fp32(const float* values, int64_t n, const Fp32Halves& halves) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Fp32Halves at = halves.from(i);
    store(at.marks, split_halves(load(values + i), load(at.marks), at.high, at.low));
  }
  const int64_t tail = n - i;
  if (tail == 0) return;
  const Fp32Halves at = halves.from(i);
  HalvesLanes lanes;
  const Vec marks = split_halves(load_partial(values + i, tail), load_partial(at.marks, tail), lanes.high, lanes.low);
  store_partial(at.marks, marks, tail);
  lanes.put(at, tail);
}

inline void join_fp32(const Fp32Halves& halves, int64_t n, float* values) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Fp32Halves at = halves.from(i);
    const Vec marks = load(at.marks);
    store(values + i, join_halves(at.high, at.low, marks));
    store(at.marks, without_sign(marks));
  }
  const int64_t tail = n - i;
  if (tail == 0) return;
  const Fp32Halves at = halves.from(i);
  HalvesLanes lanes;
  lanes.get(at, tail);
  const Vec marks = load_partial(at.marks, tail);
  store_partial(values + i, join_halves(lanes.high, lanes.low, marks), tail);
  store_partial(at.marks, without_sign(marks), tail);
}
