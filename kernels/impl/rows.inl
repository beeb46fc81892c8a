// Body of rows.h.

template <class T>
void weighted_row_sum(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  for (int64_t i = 0; i < whole; i += kLanes) {
    Vec sum = zero();
    for (int64_t r = 0; r < count; ++r) {
      const Vec row = load(rows[r] + i);
      sum = weights != nullptr ? fma(broadcast(weights[r]), row, sum) : sum + row;
    }
    store(y + i, sum);
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
float weighted_row_sum_backward(const T* dy, const T* row, float weight, int64_t h, T* drow) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec factor = broadcast(weight);
  Vec sum0 = zero(), sum1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
    const Vec a = load(dy + i), b = load(dy + i + kLanes);
    sum0 = fma(a, load(row + i), sum0);
    sum1 = fma(b, load(row + i + kLanes), sum1);
    store(drow + i, a * factor);
    store(drow + i + kLanes, b * factor);
  }
  for (; i < whole; i += kLanes) {
    const Vec a = load(dy + i);
    sum0 = fma(a, load(row + i), sum0);
    store(drow + i, a * factor);
  }
  if (tail > 0) {
    const Vec a = load_partial(dy + whole, tail);
    sum1 = fma(a, load_partial(row + whole, tail), sum1);
    store_partial(drow + whole, a * factor, tail);
  }
  return reduce_add(sum0 + sum1);
}
