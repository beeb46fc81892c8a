// Gradients of norm.h: dx = rstd * g*dy - along * (x - mean) - across (+ dresidual), where sums over the row give
// along = rstd^2 * mean(g*dy*xhat) and across = rstd * mean(g*dy). RMSNorm is the case without mean and across.
//
// So that memory is read and written all the time, one loop makes the gradients of some rows, which the caches hold,
// and the sums of the next ones; and every second time what both sets of rows give to dgamma and dbeta.

// A row's statistics, in every lane.
struct NormRow {
  Vec mean, rstd, along, across;
};

// Over a row: of g*dy*(x - mean), and of g*dy.
struct NormSums {
  Vec along, across;
};

template <class T>
struct NormRows {
  const T *dy, *x;
};

// What the loops read and write: kRows rows from `here` on, dresidual and dx are those of the same rows; of the next
// ones `next` only. Rows lie h elements apart.
template <class T>
struct NormGradient {
  NormRows<T> here, next;
  const T* dresidual;  // may be null
  T* dx;
  const T* gamma;
  Vec gamma_offset;
  float *dgamma, *dbeta;
  int64_t h;
  bool past_caches;
};

// Rows that L1 does not hold beside the weights' sums go by four at a time, so that those come and go less often.
// Shares of the bandwidth (Zen 4, one thread, idle; RMSNorm, and LayerNorm with dresidual), which were 62 to 94 % and
// 56 to 69 % of fp32, 46 to 55 % of bf16, with a row's sums and its gradients in loops of their own:
//   fp32  768: 87 and 84 %, 1600: 68 and 78 %, 4096: 75 and 83 %; one at a time 1600: 73 and 75 %, 4096: 67 and 73 %
//   bf16  768: 90 and 90 %, 1600: 90 and 93 %, 4096: 86 and 87 %, one at a time; four of 4096: 55 and 50 %
template <class T>
constexpr bool kWideRowsByFour = sizeof(T) == 4;
constexpr int64_t kWideRowBytes = 4096;
// How far ahead of its use memory is asked for; farther, four rows' lines drive each other out.
template <int64_t kRows>
constexpr int64_t kNormAheadBytes = kRows == 1 ? 4096 : 1536;

// Columns [begin, end), whole lines. kHere: gradients of the rows that `here` tells of. kNext: adds to the sums of
// those that `next` does. kWeights: adds to dgamma and dbeta what both give.
template <bool kCentred, int64_t kRows, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_columns(const NormGradient<T>& at, int64_t begin, int64_t end, const NormRow* here,
                            const NormRow* next, NormSums* results) {
  constexpr int64_t kVecs = kLineVecs<T>;
  NormSums sums[kRows];  // in registers, which what a pointer leads to is not
#pragma GCC unroll 4
  for (int64_t row = 0; row < kRows; ++row) sums[row] = results[row];
  for (int64_t i = begin; i < end; i += kLineLanes<T>) {
    Line<T> g = load_line(at.gamma + i), dgamma, dbeta;
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVecs; ++v) {
      g.vecs[v] = g.vecs[v] + at.gamma_offset;
      dgamma.vecs[v] = dbeta.vecs[v] = zero();
    }
#pragma GCC unroll 4
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t place = row * at.h + i;
      if constexpr (kNext) {
        prefetch_ahead<kNormAheadBytes<kRows>>(at.next.dy + place);
        prefetch_ahead<kNormAheadBytes<kRows>>(at.next.x + place);
        const Line<T> dy = load_line(at.next.dy + place), x = load_line(at.next.x + place);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVecs; ++v) {
          const Vec product = dy.vecs[v] * (kCentred ? x.vecs[v] - next[row].mean : x.vecs[v]);
          sums[row].along = fma(product, g.vecs[v], sums[row].along);
          if constexpr (kCentred) sums[row].across = fma(dy.vecs[v], g.vecs[v], sums[row].across);
          if constexpr (kWeights) {
            dgamma.vecs[v] = fma(product, next[row].rstd, dgamma.vecs[v]);
            if constexpr (kCentred) dbeta.vecs[v] = dbeta.vecs[v] + dy.vecs[v];
          }
        }
      }
      if constexpr (kHere) {
        const Line<T> dy = load_line(at.here.dy + place), x = load_line(at.here.x + place);
        Line<T> gradient;
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVecs; ++v) {
          const Vec centred = kCentred ? x.vecs[v] - here[row].mean : x.vecs[v];
          const Vec slope = g.vecs[v] * dy.vecs[v] * here[row].rstd;
          gradient.vecs[v] = (kCentred ? slope - here[row].across : slope) - centred * here[row].along;
          if constexpr (kWeights) {
            dgamma.vecs[v] = fma(dy.vecs[v] * centred, here[row].rstd, dgamma.vecs[v]);
            if constexpr (kCentred) dbeta.vecs[v] = dbeta.vecs[v] + dy.vecs[v];
          }
        }
        if (at.dresidual != nullptr) {
          prefetch_ahead<kNormAheadBytes<kRows>>(at.dresidual + place);
          const Line<T> residual = load_line(at.dresidual + place);
#pragma GCC unroll 2
          for (int64_t v = 0; v < kVecs; ++v) gradient.vecs[v] = gradient.vecs[v] + residual.vecs[v];
        }
        put_line(at.dx + place, gradient, at.past_caches);
      }
    }
    if constexpr (kWeights) {
      add_in_order(at.dgamma + i, dgamma);
      if constexpr (kCentred) add_in_order(at.dbeta + i, dbeta);
    }
  }
#pragma GCC unroll 4
  for (int64_t row = 0; row < kRows; ++row) results[row] = sums[row];
}

// The n < kLineLanes columns from `begin` on: as a line of their own, of which the rest is 0.
template <bool kCentred, int64_t kRows, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_last_columns(const NormGradient<T>& at, int64_t begin, int64_t n, const NormRow* here,
                                 const NormRow* next, NormSums* sums) {
  constexpr int64_t kLine = kLineLanes<T>;
  T dy[2][kRows * kLine] = {}, x[2][kRows * kLine] = {}, dresidual[kRows * kLine] = {}, dx[kRows * kLine];
  T gamma[kLine] = {};
  float dgamma[kLine] = {}, dbeta[kLine] = {};
  for (int64_t i = 0; i < n; ++i) {
    gamma[i] = at.gamma[begin + i];
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t from = row * at.h + begin + i, to = row * kLine + i;
      if (kHere) dy[0][to] = at.here.dy[from], x[0][to] = at.here.x[from];
      if (kNext) dy[1][to] = at.next.dy[from], x[1][to] = at.next.x[from];
      if (kHere && at.dresidual != nullptr) dresidual[to] = at.dresidual[from];
    }
  }
  const NormGradient<T> line = {{dy[0], x[0]},   {dy[1], x[1]}, dresidual, dx,    gamma,
                                at.gamma_offset, dgamma,        dbeta,     kLine, false};
  norm_columns<kCentred, kRows, kHere, kNext, kWeights>(line, 0, kLine, here, next, sums);
  for (int64_t i = 0; i < n; ++i) {
    if (kWeights) at.dgamma[begin + i] += dgamma[i];
    if (kWeights && kCentred) at.dbeta[begin + i] += dbeta[i];
    for (int64_t row = 0; row < kRows && kHere; ++row) at.dx[row * at.h + begin + i] = dx[row * kLine + i];
  }
}

template <bool kCentred, int64_t kRows, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_rows(const NormGradient<T>& at, const NormRow* here, const NormRow* next, NormSums* sums) {
  for (int64_t row = 0; row < kRows; ++row) sums[row] = {zero(), zero()};
  const int64_t whole = at.h / kLineLanes<T> * kLineLanes<T>;
  norm_columns<kCentred, kRows, kHere, kNext, kWeights>(at, 0, whole, here, next, sums);
  if (whole < at.h) {
    norm_last_columns<kCentred, kRows, kHere, kNext, kWeights>(at, whole, at.h - whole, here, next, sums);
  }
}

// rows: a multiple of kRows. The weights' sums are made every second time, of the rows here and of the next ones.
template <bool kCentred, int64_t kRows, class T>
MS_INLINE void norm_gradient(NormGradient<T> at, const float* mean, const float* rstd, int64_t rows) {
  NormRow here[kRows], next[kRows];
  NormSums sums[kRows];
  const Vec share = broadcast(1.0F / static_cast<float>(at.h));
  bool weights = false;
  for (int64_t row = -kRows; row < rows; row += kRows, weights = !weights) {
    const bool more = row + kRows < rows;
    for (int64_t k = 0; k < kRows; ++k) {
      here[k] = next[k];
      if (!more) continue;
      next[k].rstd = broadcast(rstd[row + kRows + k]);
      if (kCentred) next[k].mean = broadcast(mean[row + kRows + k]);
    }
    if (row < 0) {
      norm_rows<kCentred, kRows, false, true, false>(at, here, next, sums);
    } else if (more) {
      if (weights) {
        norm_rows<kCentred, kRows, true, true, true>(at, here, next, sums);
      } else {
        norm_rows<kCentred, kRows, true, true, false>(at, here, next, sums);
      }
    } else if (weights) {
      norm_rows<kCentred, kRows, true, false, true>(at, here, next, sums);
    } else {
      norm_rows<kCentred, kRows, true, false, false>(at, here, next, sums);
    }
    for (int64_t k = 0; k < kRows && more; ++k) {
      const Vec r = next[k].rstd;
      next[k].along = broadcast(reduce_add(sums[k].along)) * share * r * r * r;
      if (kCentred) next[k].across = broadcast(reduce_add(sums[k].across)) * share * r;
    }
    at.here = at.next;
    if (more) {
      at.next.dy += kRows * at.h;
      at.next.x += kRows * at.h;
      if (row >= 0) at.dx += kRows * at.h;
      if (row >= 0 && at.dresidual != nullptr) at.dresidual += kRows * at.h;
    }
  }
}

template <bool kCentred, class T>
MS_INLINE void norm_backward(NormGradient<T> at, const float* mean, const float* rstd, int64_t rows) {
  if constexpr (kWideRowsByFour<T>) {
    const int64_t by_four = at.h * static_cast<int64_t>(sizeof(T)) > kWideRowBytes ? rows / 4 * 4 : 0;
    if (by_four > 0) {
      norm_gradient<kCentred, 4>(at, mean, rstd, by_four);
      if (by_four == rows) return;
      const int64_t skipped = by_four * at.h;
      at.next = {at.next.dy + skipped, at.next.x + skipped};
      at.dx += skipped;
      if (at.dresidual != nullptr) at.dresidual += skipped;
      if (kCentred) mean += by_four;
      rstd += by_four;
      rows -= by_four;
    }
  }
  if (rows > 0) norm_gradient<kCentred, 1>(at, mean, rstd, rows);
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* rstd,
                       const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma, Stores stores) {
  const NormGradient<T> at = {
      {}, {dy, x}, dresidual, dx, gamma, broadcast(gamma_offset), dgamma, nullptr, h, streams_lines(stores, dx, h)};
  norm_backward<false>(at, nullptr, rstd, rows);
  finish(stores);
}

template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* mean,
                         const float* rstd, const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma,
                         float* dbeta, Stores stores) {
  const NormGradient<T> at = {
      {}, {dy, x}, dresidual, dx, gamma, broadcast(gamma_offset), dgamma, dbeta, h, streams_lines(stores, dx, h)};
  norm_backward<true>(at, mean, rstd, rows);
  finish(stores);
}
