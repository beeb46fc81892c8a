// Body of reduce.h: sums of 16- and 32-bit floats.

template <class T>
void sum_inputs(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  constexpr int64_t kUnrolled = 4 * kLanes;
  int64_t i = 0;
  for (; i + kUnrolled <= n; i += kUnrolled) {
    const T* first = inputs[0] + i;
    Vec a = load(first), b = load(first + kLanes), c = load(first + 2 * kLanes), d = load(first + 3 * kLanes);
    for (int r = 1; r < num_inputs; ++r) {
      const T* next = inputs[r] + i;
      a = a + load(next), b = b + load(next + kLanes);
      c = c + load(next + 2 * kLanes), d = d + load(next + 3 * kLanes);
    }
    store(out + i, a), store(out + i + kLanes, b);
    store(out + i + 2 * kLanes, c), store(out + i + 3 * kLanes, d);
  }
  for (; i < n; i += kLanes) {
    const int64_t left = n - i < kLanes ? n - i : kLanes;
    Vec sum = load_partial(inputs[0] + i, left);
    for (int r = 1; r < num_inputs; ++r) sum = sum + load_partial(inputs[r] + i, left);
    store_partial(out + i, sum, left);
  }
}
