// Body of convert.h.

template <bool kNonTemporal, class From, class To>
void convert_into(const From* source, To* target, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) put<kNonTemporal>(target + i, load(source + i));
  if (i == n) return;
  From from[kLanes] = {};
  To to[kLanes];
  for (int64_t lane = 0; lane < n - i; ++lane) from[lane] = source[i + lane];
  store(to, load(from));
  for (int64_t lane = 0; lane < n - i; ++lane) target[i + lane] = to[lane];
}

template <class From, class To>
void convert(const From* source, To* target, int64_t n, Stores stores) {
  if (streams(stores, target)) {
    convert_into<true>(source, target, n);
  } else {
    convert_into<false>(source, target, n);
  }
  finish(stores);
}
