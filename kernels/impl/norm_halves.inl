// Norms of 16-bit numbers (norm.h). To keep memory busy with reads and writes, one loop scales some rows, which are in
// cache, and computes the sums of the next rows. Share of a copy's bandwidth (Zen 4, one thread, rows of 768, 1600 and
// 4096 bf16 numbers): RMSNorm 1.04, 0.99, 0.94; LayerNorm 0.85, 0.89, 0.92. With a separate loop for every pass: 0.77,
// 0.75, 0.75 and 0.51, 0.53, 0.55. For rows of fp32, separate loops are faster.
//
// A LayerNorm sums the differences d from the row's first number, which is at most sqrt(h) standard deviations from the
// mean. sum(d^2) - sum(d)^2 / h therefore has a relative error of at most about h 2^-24, far below the rounding of a
// 16-bit result. For the same reason (x - mean) * rstd may be a single multiply-add.

// Two rows at a time share the loads of gamma and beta.
constexpr int64_t kHalfNormRows = 2;

// Prefetch distance in bytes. LayerNorm of 768: 0.89 instead of 0.83; of 4096, where a short distance from the first
// row would fall into the second: 0.9 instead of 0.6; 1024 and 1600: no difference.
inline int64_t half_norm_ahead(int64_t row_bytes) { return row_bytes <= 4096 ? 8192 : 12288; }

// y = (x * factor + term) * g + beta
struct HalfNormScale {
  Vec factor, term;
};

// Sums over a row of d and d^2, d = x - first, separately for even and odd elements.
struct HalfNormSums {
  Vec first, sum[2], squares[2];
};

// Rows `here` are scaled, rows `next` are summed; rows are stride elements apart, also in y.
template <class T>
struct HalfNorm {
  const T *here, *next, *gamma, *beta;
  Vec gamma_offset;
  T* y;
  int64_t stride;
  bool non_temporal;
};

// Columns [begin, end), whole lines.
template <bool kCentred, int64_t kRows, bool kHere, bool kNext, class T>
MS_INLINE void half_norm_columns(const HalfNorm<T>& at, int64_t begin, int64_t end, const HalfNormScale* scales,
                                 HalfNormSums* results) {
  const int64_t ahead = half_norm_ahead(at.stride * static_cast<int64_t>(sizeof(T)));
  HalfNormSums sums[kRows];  // a local copy can stay in registers
#pragma GCC unroll 2
  for (int64_t row = 0; row < kRows; ++row) sums[row] = results[row];
  for (int64_t i = begin; i < end; i += kLineLanes<T>) {
    Line<T> g = load_line(at.gamma + i);
    const Line<T> b = load_line(kCentred ? at.beta + i : at.gamma + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) g.vecs[v] = g.vecs[v] + at.gamma_offset;
#pragma GCC unroll 2
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t place = row * at.stride + i;
      if constexpr (kNext) {
        prefetch_ahead(at.next + place, ahead);
        const Line<T> line = load_line(at.next + place);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kLineVecs<T>; ++v) {
          const Vec d = kCentred ? line.vecs[v] - sums[row].first : line.vecs[v];
          if constexpr (kCentred) sums[row].sum[v] = sums[row].sum[v] + d;
          sums[row].squares[v] = fma(d, d, sums[row].squares[v]);
        }
      }
      if constexpr (kHere) {
        Line<T> line = load_line(at.here + place);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kLineVecs<T>; ++v) {
          const Vec x = line.vecs[v], r = scales[row].factor;
          line.vecs[v] = kCentred ? fma(fma(x, r, scales[row].term), g.vecs[v], b.vecs[v]) : x * r * g.vecs[v];
        }
        put_line(at.y + place, line, at.non_temporal);
      }
    }
  }
#pragma GCC unroll 2
  for (int64_t row = 0; row < kRows; ++row) results[row] = sums[row];
}

// The n < kLineLanes columns from `begin` on, as a line of their own whose padding adds nothing to the sums.
template <bool kCentred, int64_t kRows, bool kHere, bool kNext, class T>
MS_INLINE void half_norm_last_columns(const HalfNorm<T>& at, int64_t begin, int64_t n, const HalfNormScale* scales,
                                      HalfNormSums* sums) {
  constexpr int64_t kLine = kLineLanes<T>;
  T here[kRows * kLine] = {}, next[kRows * kLine] = {}, gamma[kLine] = {}, beta[kLine] = {}, y[kRows * kLine];
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kLine; ++i) {
      const int64_t from = row * at.stride + begin + i, to = row * kLine + i;
      if (kHere && i < n) here[to] = at.here[from];
      if (kNext && (i < n || kCentred)) next[to] = at.next[i < n ? from : row * at.stride];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    gamma[i] = at.gamma[begin + i];
    if (kCentred) beta[i] = at.beta[begin + i];
  }
  const HalfNorm<T> line = {here, next, gamma, beta, at.gamma_offset, y, kLine, false};
  half_norm_columns<kCentred, kRows, kHere, kNext>(line, 0, kLine, scales, sums);
  for (int64_t row = 0; row < kRows && kHere; ++row) {
    for (int64_t i = 0; i < n; ++i) at.y[row * at.stride + begin + i] = y[row * kLine + i];
  }
}

template <bool kCentred, int64_t kRows, bool kHere, bool kNext, class T>
MS_INLINE void half_norm_rows(const HalfNorm<T>& at, const HalfNormScale* scales, HalfNormSums* sums) {
  for (int64_t row = 0; row < kRows; ++row) {
    sums[row].sum[0] = sums[row].sum[1] = sums[row].squares[0] = sums[row].squares[1] = zero();
    if (kCentred && kNext) sums[row].first = broadcast(to_float(at.next[row * at.stride]));
  }
  const int64_t whole = at.stride / kLineLanes<T> * kLineLanes<T>;
  half_norm_columns<kCentred, kRows, kHere, kNext>(at, 0, whole, scales, sums);
  if (whole < at.stride) {
    half_norm_last_columns<kCentred, kRows, kHere, kNext>(at, whole, at.stride - whole, scales, sums);
  }
}

// rows: a multiple of kRows. mean: for LayerNorm only; mean and rstd may be null.
template <bool kCentred, int64_t kRows, class T>
MS_INLINE void half_norm(HalfNorm<T> at, int64_t rows, float epsilon, float* mean, float* rstd) {
  if (rows == 0) return;
  const auto h = static_cast<float>(at.stride);
  HalfNormScale scales[kRows];
  HalfNormSums sums[kRows];
  for (int64_t row = -kRows; row < rows; row += kRows) {
    if (row + kRows == rows) {
      half_norm_rows<kCentred, kRows, true, false>(at, scales, sums);
      return;
    }
    if (row < 0) {
      half_norm_rows<kCentred, kRows, false, true>(at, scales, sums);
    } else {
      half_norm_rows<kCentred, kRows, true, true>(at, scales, sums);
      at.y += kRows * at.stride;
    }
    for (int64_t k = 0; k < kRows; ++k) {
      float squares = reduce_add(sums[k].squares[0] + sums[k].squares[1]), m = 0;
      if constexpr (kCentred) {
        const float sum = reduce_add(sums[k].sum[0] + sums[k].sum[1]);
        squares -= sum * (sum / h);
        if (squares < 0) squares = 0;  // NaN is kept
        m = to_float(at.next[k * at.stride]) + sum / h;
      }
      const float r = 1.0F / std::sqrt(squares / h + epsilon);
      scales[k] = {broadcast(r), broadcast(-m * r)};
      if (mean != nullptr) mean[row + kRows + k] = m;
      if (rstd != nullptr) rstd[row + kRows + k] = r;
    }
    at.here = at.next;
    at.next += kRows * at.stride;
  }
}

template <bool kCentred, class T>
MS_INLINE void half_norms(HalfNorm<T> at, int64_t rows, float epsilon, float* mean, float* rstd) {
  const int64_t together = rows / kHalfNormRows * kHalfNormRows;
  half_norm<kCentred, kHalfNormRows>(at, together, epsilon, mean, rstd);
  at.next += together * at.stride;
  at.y += together * at.stride;
  half_norm<kCentred, 1>(at, rows - together, epsilon, mean != nullptr ? mean + together : nullptr,
                         rstd != nullptr ? rstd + together : nullptr);
}
