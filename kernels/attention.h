// Causal attention of one head, in tiles: exact softmax without the seq x seq matrix (Dao et al. 2022; backward as in
// Dao 2023). T: float, bf16 or fp16; arithmetic in fp32.
//
// q, k, v and out are rows of d elements, `*_stride` elements apart: heads are read where they lie.
#pragma once

#include <cstdint>

#include "kernels/dropout.h"

namespace ms::kernels {

struct AttentionShape {
  int64_t seq = 0;
  int64_t d = 0;          // head dimension
  int64_t q_stride = 0;   // between positions of q, out, dout, dq
  int64_t kv_stride = 0;  // between positions of k, v, dk, dv
};

// What happens between q k^T and the product with v.
struct AttentionRule {
  float scale = 1;     // of q k^T
  float softcap = 0;   // s -> softcap * tanh(s / softcap) after the scale (Gemma 2); 0: none
  int64_t window = 0;  // keys that a query sees, itself included (Mistral); 0: all before it
  Dropout dropout;     // of the probabilities: row = query, column = key; key of the first head
  int64_t sample = 0;  // for dropout
};

// Between the dropout keys of neighbouring heads (2^64 / golden ratio, odd).
inline constexpr uint64_t kHeadDropoutKeyStep = 0x9E3779B97F4A7C15;

// Floats of workspace that the functions below need: O(seq * d).
int64_t attention_workspace(const AttentionShape& shape);
int64_t attention_backward_workspace(const AttentionShape& shape);

// out = dropout(softmax(softcap(scale * q k^T) over keys not after the query, within the window)) v;
// lse [seq]: log of the softmax's denominator.
// workspace: 64-byte aligned, attention_workspace(shape) floats, content free.
template <class T>
void causal_attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionRule& rule,
                      T* out, float* lse, float* workspace);

// Gradients of `heads` query heads that share one key and value head; head i of q, out, dout and dq is d elements after
// head i - 1, its lse seq floats after, its dropout key one step further. dq, dk and dv are written, not added to.
// workspace: attention_backward_workspace(shape) floats.
template <class T>
void causal_attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k,
                               const T* v, const T* out, const float* lse, const AttentionRule& rule, T* dq, T* dk,
                               T* dv, float* workspace);

}  // namespace ms::kernels
