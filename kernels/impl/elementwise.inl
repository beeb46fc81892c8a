// Body of elementwise.h.

template <bool kNonTemporal, class T>
void add_into(const T* a, const T* b, int64_t n, T* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) put<kNonTemporal>(out + i, load(a + i) + load(b + i));
  if (i < n) store_partial(out + i, load_partial(a + i, n - i) + load_partial(b + i, n - i), n - i);
}

template <class T>
void add(const T* a, const T* b, int64_t n, T* out, Stores stores) {
  if (streams(stores, out)) {
    add_into<true>(a, b, n, out);
  } else {
    add_into<false>(a, b, n, out);
  }
  finish(stores);
}

template <class T>
void accumulate(float* sum, const T* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(sum + i, load(sum + i) + load(x + i));
  if (i < n) store_partial(sum + i, load_partial(sum + i, n - i) + load_partial(x + i, n - i), n - i);
}

template <class T>
void scale(T* x, int64_t n, float factor) {
  const Vec f = broadcast(factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, load(x + i) * f);
  if (i < n) store_partial(x + i, load_partial(x + i, n - i) * f, n - i);
}
