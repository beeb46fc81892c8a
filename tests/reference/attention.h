// Attention of one head: softmax(scale q k^T) v with the matrix written out (Vaswani et al. 2017, equation 1), with the
// variants that models use: a soft cap of scores (Gemma 2), a bias (ALiBi), masks of any form, dropout of
// probabilities.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

struct Attention {
  Array out;  // [queries, d_v]
  Array lse;  // [queries]; -inf for a query that sees no key, whose out is 0
};

struct AttentionParams {
  double scale = 1;
  double softcap = 0;                                                 // 0: none
  std::function<bool(size_t query, size_t key)> sees = nullptr;       // null: causal
  std::function<double(size_t query, size_t key)> bias = nullptr;     // added after scale and soft cap
  std::function<double(size_t query, size_t key)> dropout = nullptr;  // multiplies a probability
};

// A query sees itself and earlier keys, `window` keys in total; 0: all of them.
inline std::function<bool(size_t, size_t)> causal(size_t window = 0) {
  return [window](size_t i, size_t j) { return j <= i && (window == 0 || j + window > i); };
}

// One row of the matrix, and what backward needs of it.
struct AttentionRow {
  Array p;      // probabilities before dropout, 0 for keys that are not seen
  Array slope;  // derivative of the soft cap
  double lse;
};

inline AttentionRow attention_row(const Array& q, const Array& k, size_t i, size_t d, const AttentionParams& params) {
  const size_t keys = k.size() / d;
  static const std::function<bool(size_t, size_t)> kCausal = causal();
  const auto& sees = params.sees ? params.sees : kCausal;
  AttentionRow row{Array(keys), Array(keys, 1.0), 0};
  double most = -INFINITY, sum = 0;
  for (size_t j = 0; j < keys; ++j) {
    row.p[j] = -INFINITY;
    if (!sees(i, j)) continue;
    double score = 0;
    for (size_t e = 0; e < d; ++e) score += params.scale * q[i * d + e] * k[j * d + e];
    if (params.softcap > 0) {
      const double t = std::tanh(score / params.softcap);
      score = params.softcap * t;
      row.slope[j] = 1 - t * t;
    }
    if (params.bias) score += params.bias(i, j);
    row.p[j] = score;
    most = std::max(most, row.p[j]);
  }
  for (const double score : row.p) sum += score == -INFINITY ? 0 : std::exp(score - most);
  row.lse = most + std::log(sum);
  for (double& p : row.p) p = p == -INFINITY ? 0 : std::exp(p - row.lse);
  return row;
}

// Elements of a row of v, which may be others than those of q and k.
inline size_t value_width(const Array& k, const Array& v, size_t d) {
  return k.empty() ? d : v.size() / (k.size() / d);
}

// q: [queries, d]; k: [keys, d]; v: [keys, d_v].
inline Attention attention(const Array& q, const Array& k, const Array& v, int64_t d, const AttentionParams& params) {
  const auto width = static_cast<size_t>(d), width_v = value_width(k, v, width);
  Attention result{Array(q.size() / width * width_v), {}};
  for (size_t i = 0; i < q.size() / width; ++i) {
    const AttentionRow row = attention_row(q, k, i, width, params);
    result.lse.push_back(row.lse);
    for (size_t j = 0; j < row.p.size(); ++j) {
      if (row.p[j] == 0) continue;
      const double p = row.p[j] * (params.dropout ? params.dropout(i, j) : 1.0);
      for (size_t e = 0; e < width_v; ++e) result.out[i * width_v + e] += p * v[j * width_v + e];
    }
  }
  return result;
}

struct AttentionGradients {
  Array dq, dk, dv;  // shapes of q, k, v
  Array dbias;       // [queries, keys]
};

// Gradients of dot(out, dout), by the chain rule over the same matrix: used where central differences take too long.
inline AttentionGradients attention_backward(const Array& dout, const Array& q, const Array& k, const Array& v,
                                             int64_t d, const AttentionParams& params) {
  const auto width = static_cast<size_t>(d), width_v = value_width(k, v, width);
  const size_t keys = k.size() / width;
  AttentionGradients result{Array(q.size()), Array(k.size()), Array(v.size()), Array(q.size() / width * keys)};
  for (size_t i = 0; i < q.size() / width; ++i) {
    const AttentionRow row = attention_row(q, k, i, width, params);
    Array dp(row.p.size());
    double mean = 0;
    for (size_t j = 0; j < dp.size(); ++j) {
      if (row.p[j] == 0) continue;
      const double factor = params.dropout ? params.dropout(i, j) : 1.0;
      for (size_t e = 0; e < width_v; ++e) {
        dp[j] += factor * dout[i * width_v + e] * v[j * width_v + e];
        result.dv[j * width_v + e] += row.p[j] * factor * dout[i * width_v + e];
      }
      mean += row.p[j] * dp[j];
    }
    for (size_t j = 0; j < dp.size(); ++j) {
      if (row.p[j] == 0) continue;
      result.dbias[i * keys + j] = row.p[j] * (dp[j] - mean);
      const double ds = params.scale * result.dbias[i * keys + j] * row.slope[j];
      for (size_t e = 0; e < width; ++e) {
        result.dq[i * width + e] += ds * k[j * width + e];
        result.dk[j * width + e] += ds * q[i * width + e];
      }
    }
  }
  return result;
}

}  // namespace ms::reference
