#include "kernels/attention.h"

#include "kernels/progress.h"

namespace ms::kernels {
namespace {

// Multiples of every register tile, in rows and columns (impl/micro_tile.inl). Scores and their gradients, 300 KB, stay
// in L2 while the strips of K, V and dO of a block pass through L1. Compared with 48 x 192 on Cascade Lake: equal up to
// 4096 positions; backward 10 to 20 % faster from 16384 positions, or with heads of 128, where K, V and their gradients
// come from L3.
constexpr int64_t kQueryBlock = 192;
constexpr int64_t kKeyBlock = 192;
constexpr int64_t kHeadPadding = 32;

int64_t padded_head(int64_t d) { return (d + kHeadPadding - 1) / kHeadPadding * kHeadPadding; }
int64_t padded_keys(int64_t keys) { return (keys + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

// Floats that pack may write beyond its result; a whole cache line, which keeps the next operand aligned.
constexpr int64_t kPackSlack = 16;
// Of all keys, or their gradients: rows of d elements.
int64_t operand_floats(int64_t keys, int64_t d) { return padded_keys(keys) * padded_head(d) + kPackSlack; }
int64_t block_floats(int64_t d) { return kQueryBlock * padded_head(d) + kPackSlack; }

}  // namespace
}  // namespace ms::kernels

#define MS_KERNEL_BODY "kernels/impl/attention.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {

int64_t attention_workspace(const AttentionShape& shape) {
  const AttentionShape of = shape.resolved();
  return operand_floats(of.keys, of.d) + operand_floats(of.keys, of.value_d) + kQueryBlock * padded_head(of.d) +
         kQueryBlock * padded_head(of.value_d) + kQueryBlock * kKeyBlock;
}

int64_t attention_backward_workspace(const AttentionShape& shape) {
  const AttentionShape of = shape.resolved();
  const int64_t sums = padded_keys(of.keys) * (padded_head(of.d) + padded_head(of.value_d));
  return 2 * operand_floats(of.keys, of.d) + operand_floats(of.keys, of.value_d) + sums + 3 * block_floats(of.d) +
         2 * block_floats(of.value_d) + 2 * kQueryBlock * kKeyBlock;
}

template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionParams& params, T* out,
               const SoftmaxStatistics& statistics, float* workspace) {
  MS_DISPATCH(attention(shape.resolved(), q, k, v, params, out, statistics, workspace));
}
template void attention(const AttentionShape&, const float*, const float*, const float*, const AttentionParams&, float*,
                        const SoftmaxStatistics&, float*);
template void attention(const AttentionShape&, const bf16*, const bf16*, const bf16*, const AttentionParams&, bf16*,
                        const SoftmaxStatistics&, float*);
template void attention(const AttentionShape&, const fp16*, const fp16*, const fp16*, const AttentionParams&, fp16*,
                        const SoftmaxStatistics&, float*);

template <class T>
void attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k, const T* v,
                        const T* out, const float* lse, const AttentionParams* head_params, T* dq, T* dk, T* dv,
                        float* workspace) {
  MS_DISPATCH(attention_backward(shape.resolved(), heads, dout, q, k, v, out, lse, head_params, dq, dk, dv, workspace));
}
template void attention_backward(const AttentionShape&, int64_t, const float*, const float*, const float*, const float*,
                                 const float*, const float*, const AttentionParams*, float*, float*, float*, float*);
template void attention_backward(const AttentionShape&, int64_t, const bf16*, const bf16*, const bf16*, const bf16*,
                                 const bf16*, const float*, const AttentionParams*, bf16*, bf16*, bf16*, float*);
template void attention_backward(const AttentionShape&, int64_t, const fp16*, const fp16*, const fp16*, const fp16*,
                                 const fp16*, const float*, const AttentionParams*, fp16*, fp16*, fp16*, float*);

}  // namespace ms::kernels
