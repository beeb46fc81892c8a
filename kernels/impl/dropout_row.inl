// Body of dropout.h.

#include "kernels/impl/dropout.inl"

template <class T>
void dropout_row(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n, T* x) {
  constexpr int64_t kChunk = 1024;
  float factors[kChunk];
  for (int64_t done = 0; done < n; done += kChunk) {
    const int64_t count = n - done < kChunk ? n - done : kChunk;
    fill_dropout_factors(dropout, sample, row, first_column + done, count, factors);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(x + done + i, load(x + done + i) * load(factors + i));
    for (; i < count; ++i) x[done + i] = T(to_float(x[done + i]) * factors[i]);
  }
}
