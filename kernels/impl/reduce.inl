// Body of reduce.h: sums and means of 16- and 32-bit floats.

struct AsSum {
  MS_INLINE explicit AsSum(int /*num_inputs*/) {}
  MS_INLINE Vec operator()(Vec sum) const { return sum; }
};

struct AsMean {
  MS_INLINE explicit AsMean(int num_inputs) : count(broadcast(static_cast<float>(num_inputs))) {}
  MS_INLINE Vec operator()(Vec sum) const { return sum / count; }
  Vec count;
};

template <class Result, class T>
MS_INLINE void add_inputs(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  constexpr int64_t kUnrolled = 4 * kLanes;
  const Result of(num_inputs);
  int64_t i = 0;
  for (; i + kUnrolled <= n; i += kUnrolled) {
    const T* first = inputs[0] + i;
    Vec a = load(first), b = load(first + kLanes), c = load(first + 2 * kLanes), d = load(first + 3 * kLanes);
    for (int r = 1; r < num_inputs; ++r) {
      const T* next = inputs[r] + i;
      a = a + load(next), b = b + load(next + kLanes);
      c = c + load(next + 2 * kLanes), d = d + load(next + 3 * kLanes);
    }
    store(out + i, of(a)), store(out + i + kLanes, of(b));
    store(out + i + 2 * kLanes, of(c)), store(out + i + 3 * kLanes, of(d));
  }
  for (; i < n; i += kLanes) {
    const int64_t left = n - i < kLanes ? n - i : kLanes;
    Vec sum = load_partial(inputs[0] + i, left);
    for (int r = 1; r < num_inputs; ++r) sum = sum + load_partial(inputs[r] + i, left);
    store_partial(out + i, of(sum), left);
  }
}

template <class T>
void sum_inputs(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  add_inputs<AsSum>(inputs, num_inputs, n, out);
}

template <class T>
void average_inputs(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  add_inputs<AsMean>(inputs, num_inputs, n, out);
}
