// Gradients of norm.h: dx = rstd * g*dy - along * (x - mean) - across (+ dresidual), where
// along = rstd^2 * mean(g*dy*xhat) and across = rstd * mean(g*dy). RMSNorm has neither mean nor across.
//
// To keep memory busy with reads and writes, one loop computes the gradients of a row, which is in cache, and the sums
// of the next row; every second time also what both rows add to dgamma and dbeta. Share of the bandwidth (Zen 4, one
// thread, idle machine; RMSNorm, and LayerNorm with dresidual):
//   fp32  768: 93 and 98 %, 1600: 88 and 94 %, 4096: 88 and 94 %
//   bf16  768: 90 and 93 %, 1600: 94 and 94 %, 4096: 91 and 89 %
// With one loop for fp32's sums and another, backwards through the row, for its gradients, each prefetching half of the
// next row: 87, 87 and 83 %, and 70, 78 and 68 %. Four rows at a time, which load gamma and the sums of the weights
// less often, are no better.

// Sums of g*dy*(x - mean) and of g*dy over some columns of a row.
struct NormSums {
  Vec along, across;
};

// A row's statistics, broadcast to every lane.
struct NormRow {
  Vec mean, rstd, along, across;
};

template <class T>
struct NormOperands {
  const T *dy, *x;
};

// What the loops read and write: the current row, and from the next row only what the sums need.
template <class T>
struct NormGradient {
  NormOperands<T> here, next;
  const T* dresidual;  // may be null
  T* dx;
  const T* gamma;
  Vec gamma_offset;
  float *dgamma, *dbeta;
  int64_t h;
  bool non_temporal;
};

// Columns [begin, end), whole lines. kHere: computes the gradients of row `here`. kNext: adds to the sums of row
// `next`. kWeights: adds what both rows contribute to dgamma and dbeta.
template <bool kCentred, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_columns(const NormGradient<T>& at, int64_t begin, int64_t end, const NormRow& here,
                            const NormRow& next, NormSums& result) {
  constexpr int64_t kVecs = kLineVecs<T>;
  NormSums sums = result;  // a local copy can stay in registers
  for (int64_t i = begin; i < end; i += kLineLanes<T>) {
    Line<T> g = load_line(at.gamma + i), dgamma, dbeta;
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVecs; ++v) {
      g.vecs[v] = g.vecs[v] + at.gamma_offset;
      dgamma.vecs[v] = dbeta.vecs[v] = zero();
    }
    if constexpr (kNext) {
      prefetch_ahead(at.next.dy + i);
      prefetch_ahead(at.next.x + i);
      const Line<T> dy = load_line(at.next.dy + i), x = load_line(at.next.x + i);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVecs; ++v) {
        const Vec product = dy.vecs[v] * (kCentred ? x.vecs[v] - next.mean : x.vecs[v]);
        sums.along = fma(product, g.vecs[v], sums.along);
        if constexpr (kCentred) sums.across = fma(dy.vecs[v], g.vecs[v], sums.across);
        if constexpr (kWeights) {
          dgamma.vecs[v] = fma(product, next.rstd, dgamma.vecs[v]);
          if constexpr (kCentred) dbeta.vecs[v] = dbeta.vecs[v] + dy.vecs[v];
        }
      }
    }
    if constexpr (kHere) {
      const Line<T> dy = load_line(at.here.dy + i), x = load_line(at.here.x + i);
      Line<T> gradient;
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVecs; ++v) {
        const Vec centred = kCentred ? x.vecs[v] - here.mean : x.vecs[v];
        const Vec slope = g.vecs[v] * dy.vecs[v] * here.rstd;
        gradient.vecs[v] = (kCentred ? slope - here.across : slope) - centred * here.along;
        if constexpr (kWeights) {
          dgamma.vecs[v] = fma(dy.vecs[v] * centred, here.rstd, dgamma.vecs[v]);
          if constexpr (kCentred) dbeta.vecs[v] = dbeta.vecs[v] + dy.vecs[v];
        }
      }
      if (at.dresidual != nullptr) {
        prefetch_ahead(at.dresidual + i);
        const Line<T> residual = load_line(at.dresidual + i);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVecs; ++v) gradient.vecs[v] = gradient.vecs[v] + residual.vecs[v];
      }
      put_line(at.dx + i, gradient, at.non_temporal);
    }
    if constexpr (kWeights) {
      add_in_order(at.dgamma + i, dgamma);
      if constexpr (kCentred) add_in_order(at.dbeta + i, dbeta);
    }
  }
  result = sums;
}

// The n < kLineLanes columns from `begin` on, as a line of their own padded with 0.
template <bool kCentred, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_last_columns(const NormGradient<T>& at, int64_t begin, int64_t n, const NormRow& here,
                                 const NormRow& next, NormSums& sums) {
  constexpr int64_t kLine = kLineLanes<T>;
  T dy[2][kLine] = {}, x[2][kLine] = {}, dresidual[kLine] = {}, dx[kLine], gamma[kLine] = {};
  float dgamma[kLine] = {}, dbeta[kLine] = {};
  for (int64_t i = 0; i < n; ++i) {
    gamma[i] = at.gamma[begin + i];
    if (kHere) dy[0][i] = at.here.dy[begin + i], x[0][i] = at.here.x[begin + i];
    if (kNext) dy[1][i] = at.next.dy[begin + i], x[1][i] = at.next.x[begin + i];
    if (kHere && at.dresidual != nullptr) dresidual[i] = at.dresidual[begin + i];
  }
  const NormGradient<T> line = {{dy[0], x[0]},   {dy[1], x[1]}, dresidual, dx,    gamma,
                                at.gamma_offset, dgamma,        dbeta,     kLine, false};
  norm_columns<kCentred, kHere, kNext, kWeights>(line, 0, kLine, here, next, sums);
  for (int64_t i = 0; i < n; ++i) {
    if (kWeights) at.dgamma[begin + i] += dgamma[i];
    if (kWeights && kCentred) at.dbeta[begin + i] += dbeta[i];
    if (kHere) at.dx[begin + i] = dx[i];
  }
}

template <bool kCentred, bool kHere, bool kNext, bool kWeights, class T>
MS_INLINE void norm_rows(const NormGradient<T>& at, const NormRow& here, const NormRow& next, NormSums& sums) {
  sums = {zero(), zero()};
  const int64_t whole = at.h / kLineLanes<T> * kLineLanes<T>;
  norm_columns<kCentred, kHere, kNext, kWeights>(at, 0, whole, here, next, sums);
  if (whole < at.h) {
    norm_last_columns<kCentred, kHere, kNext, kWeights>(at, whole, at.h - whole, here, next, sums);
  }
}

template <bool kCentred, class T>
MS_INLINE void norm_backward(NormGradient<T> at, const float* mean, const float* rstd, int64_t rows) {
  NormRow here, next;
  NormSums sums;
  const Vec share = broadcast(1.0F / static_cast<float>(at.h));
  bool weights = false;
  for (int64_t row = rows > 0 ? -1 : 0; row < rows; ++row, weights = !weights) {
    const bool more = row + 1 < rows;
    here = next;
    if (more) next = {kCentred ? broadcast(mean[row + 1]) : zero(), broadcast(rstd[row + 1]), zero(), zero()};
    if (row < 0) {
      norm_rows<kCentred, false, true, false>(at, here, next, sums);
    } else if (more) {
      if (weights) {
        norm_rows<kCentred, true, true, true>(at, here, next, sums);
      } else {
        norm_rows<kCentred, true, true, false>(at, here, next, sums);
      }
    } else if (weights) {
      norm_rows<kCentred, true, false, true>(at, here, next, sums);
    } else {
      norm_rows<kCentred, true, false, false>(at, here, next, sums);
    }
    if (!more) continue;
    const Vec r = next.rstd;
    next.along = broadcast(reduce_add(sums.along)) * share * r * r * r;
    if constexpr (kCentred) next.across = broadcast(reduce_add(sums.across)) * share * r;
    at.here = at.next;
    at.next.dy += at.h, at.next.x += at.h;
    if (row < 0) continue;
    at.dx += at.h;
    if (at.dresidual != nullptr) at.dresidual += at.h;
  }
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
