// Attention of one head, in tiles: exact softmax without the queries x keys matrix (Dao et al. 2022; backward as in
// Dao 2023). T: float, bf16 or fp16; arithmetic in fp32.
//
// q, k, v and out are rows of d elements, `*_stride` elements apart: heads are read where they lie. What no query sees
// is not computed.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"

namespace ms::kernels {

struct AttentionShape {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t d = 0;            // head dimension
  int64_t q_stride = 0;     // between positions of q, out, dout, dq
  int64_t kv_stride = 0;    // between positions of k, v, dk, dv
  int64_t head_stride = 0;  // between query heads that share a key and value head; backward only
};

// The keys that a query sees: query i those from i + first to i + last, and the first `prefix` ones whatever i is.
struct Visible {
  static constexpr int64_t kAll = int64_t{1} << 40;
  int64_t first = -kAll;
  int64_t last = 0;    // 0: causal; kAll: every key
  int64_t prefix = 0;  // where it is not 0, first is -kAll
};

// Added to the scores, after scale and soft cap.
struct ScoreBias {
  const float* values = nullptr;  // rows of keys, row_stride apart, one for each query; times factor
  int64_t row_stride = 0;         // 0: one row for all queries
  float factor = 1;
  float* gradient = nullptr;  // backward adds that of values to it, laid out as they are, query by query; may be null
  float slope = 0;            // -slope * |i + distance - j| of query i and key j (ALiBi; Press et al. 2022)
  int64_t distance = 0;
  bool root = false;              // of the square root of that distance
  const uint8_t* mask = nullptr;  // rows as of values: where it is not 0 the query does not see the key
  int64_t mask_stride = 0;
  bool any() const { return values != nullptr || slope != 0 || mask != nullptr; }
};

// What happens between q k^T and the product with v.
struct AttentionRule {
  float scale = 1;    // of q k^T
  float softcap = 0;  // s -> softcap * tanh(s / softcap) after the scale (Gemma 2); 0: none
  Visible visible;
  ScoreBias bias;
  Dropout dropout;     // of the probabilities: row = query, column = key
  int64_t sample = 0;  // for dropout
};

// Between the dropout keys of neighbouring heads (2^64 / golden ratio, odd).
inline constexpr uint64_t kHeadDropoutKeyStep = 0x9E3779B97F4A7C15;

// Floats of workspace that the functions below need: O(keys * d).
int64_t attention_workspace(const AttentionShape& shape);
int64_t attention_backward_workspace(const AttentionShape& shape);

// Of each query's softmax; -inf, -inf and 0 for one that sees no key. fp32 [queries] each.
struct SoftmaxStatistics {
  float* lse;            // log of its denominator
  float* max = nullptr;  // the greatest score, and the denominator relative to it: lse = max + log(sum). May be null.
  float* sum = nullptr;
};

// out = dropout(softmax(softcap(scale * q k^T) + bias over the visible keys)) v; 0 for a query that sees no key.
// workspace: 64-byte aligned, attention_workspace(shape) floats, content free.
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionRule& rule, T* out,
               const SoftmaxStatistics& statistics, float* workspace);

// Gradients of `heads` query heads that share one key and value head; head i of q, out, dout and dq is head_stride
// elements after head i - 1, its lse `queries` floats after, its rule rules[i]; scale and visible are those of
// rules[0]. dq, dk and dv are written, not added to. workspace: attention_backward_workspace(shape) floats.
template <class T>
void attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k, const T* v,
                        const T* out, const float* lse, const AttentionRule* rules, T* dq, T* dk, T* dv,
                        float* workspace);

}  // namespace ms::kernels
