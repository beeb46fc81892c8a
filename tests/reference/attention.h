// Causal attention of one head: softmax(scale q k^T) v with the matrix written out (Vaswani et al. 2017, equation 1),
// and what models do in between: a soft cap of scores (Gemma 2), a sliding window (Mistral), dropout of probabilities.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

struct Attention {
  Array out;  // [seq, d]
  Array lse;  // [seq]
};

struct AttentionRule {
  double scale = 1;
  double softcap = 0;                                                 // 0: none
  int64_t window = 0;                                                 // 0: none
  std::function<double(size_t query, size_t key)> dropout = nullptr;  // factor of a probability
};

// q, k, v: [seq, d].
inline Attention causal_attention(const Array& q, const Array& k, const Array& v, int64_t seq, int64_t d,
                                  const AttentionRule& rule) {
  const auto n = static_cast<size_t>(seq), width = static_cast<size_t>(d), window = static_cast<size_t>(rule.window);
  Attention result{Array(n * width), Array(n)};
  for (size_t i = 0; i < n; ++i) {
    const size_t first = window > 0 && i + 1 > window ? i + 1 - window : 0;
    Array score(i + 1);
    double most = -1e300;
    for (size_t j = first; j <= i; ++j) {
      for (size_t e = 0; e < width; ++e) score[j] += rule.scale * q[i * width + e] * k[j * width + e];
      if (rule.softcap > 0) score[j] = rule.softcap * std::tanh(score[j] / rule.softcap);
      most = std::max(most, score[j]);
    }
    double sum = 0;
    for (size_t j = first; j <= i; ++j) sum += std::exp(score[j] - most);
    result.lse[i] = most + std::log(sum);
    for (size_t j = first; j <= i; ++j) {
      const double p = std::exp(score[j] - result.lse[i]) * (rule.dropout ? rule.dropout(i, j) : 1.0);
      for (size_t e = 0; e < width; ++e) result.out[i * width + e] += p * v[j * width + e];
    }
  }
  return result;
}

struct AttentionGradients {
  Array dq, dk, dv;  // [seq, d]
};

// Gradients of dot(out, dout), by the chain rule over the same matrix: where central differences take too long.
inline AttentionGradients causal_attention_backward(const Array& dout, const Array& q, const Array& k, const Array& v,
                                                    int64_t seq, int64_t d, const AttentionRule& rule) {
  const auto n = static_cast<size_t>(seq), width = static_cast<size_t>(d), window = static_cast<size_t>(rule.window);
  const Attention forward = causal_attention(q, k, v, seq, d, rule);
  AttentionGradients result{Array(q.size()), Array(k.size()), Array(v.size())};
  for (size_t i = 0; i < n; ++i) {
    const size_t first = window > 0 && i + 1 > window ? i + 1 - window : 0;
    Array p(i + 1), dp(i + 1), slope(i + 1, 1.0);
    double mean = 0;
    for (size_t j = first; j <= i; ++j) {
      double score = 0, product = 0;
      for (size_t e = 0; e < width; ++e) {
        score += rule.scale * q[i * width + e] * k[j * width + e];
        product += dout[i * width + e] * v[j * width + e];
      }
      if (rule.softcap > 0) {
        const double t = std::tanh(score / rule.softcap);
        score = rule.softcap * t;
        slope[j] = 1 - t * t;
      }
      const double factor = rule.dropout ? rule.dropout(i, j) : 1.0;
      p[j] = std::exp(score - forward.lse[i]);
      dp[j] = product * factor;
      mean += p[j] * dp[j];
      for (size_t e = 0; e < width; ++e) result.dv[j * width + e] += p[j] * factor * dout[i * width + e];
    }
    for (size_t j = first; j <= i; ++j) {
      const double ds = rule.scale * p[j] * (dp[j] - mean) * slope[j];
      for (size_t e = 0; e < width; ++e) {
        result.dq[i * width + e] += ds * k[j * width + e];
        result.dk[j * width + e] += ds * q[i * width + e];
      }
    }
  }
  return result;
}

}  // namespace ms::reference
