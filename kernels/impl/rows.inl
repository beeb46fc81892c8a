// Body of rows.h.

// Bypasses the caches, except before the first and after the last whole vector of the target.
inline void copy_piece(const std::byte* piece, int64_t bytes, std::byte* target) {
#if MS_ISA > 0
  constexpr int64_t kStep = kLanes * static_cast<int64_t>(sizeof(float));
  const auto off = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target) % kStep);
  int64_t done = off == 0 ? 0 : std::min(bytes, kStep - off);
  std::memcpy(target, piece, static_cast<size_t>(done));
  for (; done + kStep <= bytes; done += kStep) {
    put<true>(reinterpret_cast<float*>(target + done), load(reinterpret_cast<const float*>(piece + done)));
  }
  std::memcpy(target + done, piece + done, static_cast<size_t>(bytes - done));
#else
  std::memcpy(target, piece, static_cast<size_t>(bytes));
#endif
}

inline void store_fence() { finish(Stores::kNonTemporal); }

inline void copy_row(const std::byte* row, int64_t bytes, std::byte* target, Stores stores) {
  if (stores == Stores::kCached) {
    std::memcpy(target, row, static_cast<size_t>(bytes));
  } else {
    copy_piece(row, bytes, target);
    store_fence();
  }
}

// Distance at which rows are prefetched a second time, for prefetches a row earlier that were dropped: unpermute 81.1
// -> 82.6 % of the bandwidth (rows of 4 KB, one thread of Zen 4; 1 and 3 KB: no change; 512 bytes: slower).
template <class T>
constexpr int64_t kPrefetchAgain = 2048 / static_cast<int64_t>(sizeof(T));

// Rows are scattered by expert, too far apart for the hardware prefetcher.
template <bool kNonTemporal, class T>
void weighted_row_sum_into(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y,
                           const T* const* ahead) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Vec sum = zero();
    for (int64_t r = 0; r < count; ++r) {
      prefetch(ahead[r] + i);
      prefetch(rows[r] + i + kPrefetchAgain<T>);
      const Vec row = load(rows[r] + i);
      sum = weights != nullptr ? fma(broadcast(weights[r]), row, sum) : sum + row;
    }
    put<kNonTemporal>(y + i, sum);
  }
  if (tail == 0) return;
  Vec sum = zero();
  for (int64_t r = 0; r < count; ++r) {
    const Vec row = load_partial(rows[r] + whole, tail);
    sum = weights != nullptr ? fma(broadcast(weights[r]), row, sum) : sum + row;
  }
  store_partial(y + whole, sum, tail);
}

template <class T>
void weighted_row_sum(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y, Stores stores,
                      const T* const* ahead) {
  if (ahead == nullptr) ahead = rows;
  if (streams(stores, y)) {
    weighted_row_sum_into<true>(rows, weights, count, h, y, ahead);
  } else {
    weighted_row_sum_into<false>(rows, weights, count, h, y, ahead);
  }
}

template <bool kNonTemporal, class T>
float weighted_row_sum_backward_into(const T* dy, const T* row, float weight, int64_t h, T* drow) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec factor = broadcast(weight);
  Vec sum0 = zero(), sum1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
    const Vec a = load(dy + i), b = load(dy + i + kLanes);
    sum0 = fma(a, load(row + i), sum0);
    sum1 = fma(b, load(row + i + kLanes), sum1);
    put<kNonTemporal>(drow + i, a * factor);
    put<kNonTemporal>(drow + i + kLanes, b * factor);
  }
  for (; i < whole; i += kLanes) {
    const Vec a = load(dy + i);
    sum0 = fma(a, load(row + i), sum0);
    put<kNonTemporal>(drow + i, a * factor);
  }
  if (tail > 0) {
    const Vec a = load_partial(dy + whole, tail);
    sum1 = fma(a, load_partial(row + whole, tail), sum1);
    store_partial(drow + whole, a * factor, tail);
  }
  return reduce_add(sum0 + sum1);
}

template <class T>
float weighted_row_sum_backward(const T* dy, const T* row, float weight, int64_t h, T* drow, Stores stores) {
  const float dweight = streams(stores, drow) ? weighted_row_sum_backward_into<true>(dy, row, weight, h, drow)
                                              : weighted_row_sum_backward_into<false>(dy, row, weight, h, drow);
  finish(stores);
  return dweight;
}
