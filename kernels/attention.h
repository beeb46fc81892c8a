// Attention of one head in tiles: exact softmax without storing the queries x keys matrix (Dao et al. 2022; backward as
// in Dao 2023). T: float, bf16 or fp16; arithmetic in fp32.
//
// q, k, v and out are rows, `*_stride` elements apart, so heads are read in place. Rows of v and out may have another
// number of elements than those of q and k (latent attention). Tiles of keys that no query sees are skipped.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"

namespace ms::kernels {

struct AttentionShape {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t d = 0;            // head dimension
  int64_t q_stride = 0;     // between positions of q, dq; and of out, dout unless out_stride says otherwise
  int64_t kv_stride = 0;    // between positions of k, dk; and of v, dv unless value_stride says otherwise
  int64_t head_stride = 0;  // between query heads that share a key and value head; backward only
  int64_t lse_stride = 0;   // between the lse of those heads; 0: `queries`; backward only
  // Of v, dv, out and dout where their heads have another dimension than those of q and k; 0: the same.
  int64_t value_d = 0;
  int64_t out_stride = 0;
  int64_t value_stride = 0;
  int64_t out_head_stride = 0;  // backward only
  bool adds_to_keys = false;    // backward only: dk and dv are added to, not overwritten

  // With those that are 0 filled in.
  AttentionShape resolved() const {
    AttentionShape result = *this;
    const auto fill = [](int64_t& value, int64_t same) { value = value > 0 ? value : same; };
    fill(result.lse_stride, queries);
    fill(result.value_d, d);
    fill(result.out_stride, q_stride);
    fill(result.value_stride, kv_stride);
    fill(result.out_head_stride, head_stride);
    return result;
  }
};

// Keys visible to a query: query i sees keys i + first to i + last, and the first `prefix` keys whatever i is.
struct Visible {
  static constexpr int64_t kAll = int64_t{1} << 40;
  int64_t first = -kAll;
  int64_t last = 0;    // 0: causal; kAll: every key
  int64_t prefix = 0;  // if not 0, first must be -kAll
};

// The same as lists: of each span of queries the runs of keys that it sees. They say where both stand in their
// sequence, on which causal masks, dropout and biases by distance depend. Work is that of the runs.
struct KeyRun {
  int32_t first = 0, count = 0;  // keys
  int32_t position = 0;          // of the first one
};
struct QuerySpan {
  int32_t first = 0, count = 0;  // queries
  int32_t position = 0;          // of the first one
  int32_t runs_end = 0;          // its runs are those behind the span's before, up to this one
};
struct VisibleRuns {
  const QuerySpan* spans = nullptr;  // all queries, in order; null: there are no lists
  const KeyRun* runs = nullptr;      // of a span in ascending order, none twice
  int64_t num_spans = 0;
  bool is_causal = false;  // of a run, a query sees the keys up to its own position
  bool any() const { return spans != nullptr; }
};

// Added to the scores after scale and soft cap.
struct ScoreBias {
  const float* values = nullptr;  // one row of keys per query, row_stride apart; multiplied by factor
  int64_t row_stride = 0;         // 0: one row for all queries
  float factor = 1;
  float* gradient = nullptr;  // backward adds the gradient of values, same layout, query by query; may be null
  float slope = 0;            // ALiBi: adds -slope * |i + distance - j| for query i and key j (Press et al. 2022)
  int64_t distance = 0;
  bool root = false;              // use the square root of that distance
  const uint8_t* mask = nullptr;  // rows like those of values: where not 0, the query does not see the key
  int64_t mask_stride = 0;
  bool any() const { return values != nullptr || slope != 0 || mask != nullptr; }
};

// What is applied between q k^T and the product with v.
struct AttentionParams {
  float scale = 1;    // multiplies q k^T
  float softcap = 0;  // s -> softcap * tanh(s / softcap) after the scale (Gemma 2); 0: none
  Visible visible;
  VisibleRuns runs;  // if there are any: instead of visible, first_row, first_column and bias.distance
  ScoreBias bias;
  Dropout dropout;  // on the probabilities: row = first_row + query, column = first_column + key
  int64_t sample = 0, first_row = 0, first_column = 0;  // for dropout
};

// Difference between the dropout keys of neighbouring heads (2^64 / golden ratio, odd).
inline constexpr uint64_t kHeadDropoutKeyStep = 0x9E3779B97F4A7C15;

// Floats of workspace for the functions below: O(keys * d).
int64_t attention_workspace(const AttentionShape& shape);
int64_t attention_backward_workspace(const AttentionShape& shape);

// Softmax statistics of each query; -inf, -inf and 0 for a query that sees no key. fp32 [queries] each.
struct SoftmaxStatistics {
  float* lse;            // log of the denominator
  float* max = nullptr;  // largest score; sum is the denominator relative to it: lse = max + log(sum). May be null.
  float* sum = nullptr;
};

// out = dropout(softmax(softcap(scale * q k^T) + bias over the visible keys)) v; 0 for a query that sees no key.
// workspace: 64-byte aligned, attention_workspace(shape) floats; contents need not be initialised.
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionParams& params, T* out,
               const SoftmaxStatistics& statistics, float* workspace);

// Gradients of `heads` query heads that share one key and value head. Head i of q and dq starts head_stride elements
// after head i - 1, of out and dout out_head_stride, its lse as many floats after as lse_stride says; head_params[i]
// applies to it, except that scale, visible and runs are taken from head_params[0]. dq, dk and dv are overwritten, dk
// and dv unless shape.adds_to_keys. workspace: attention_backward_workspace(shape) floats.
template <class T>
void attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k, const T* v,
                        const T* out, const float* lse, const AttentionParams* head_params, T* dq, T* dk, T* dv,
                        float* workspace);

}  // namespace ms::kernels
