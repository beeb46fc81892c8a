#include "train/model/ulysses_attention.h"

#include <utility>

#include "core/error.h"
#include "core/layout/context_parallel.h"

namespace ms::train {

UlyssesAttention::UlyssesAttention(ops::Context& ops, core::Communicator& ranks, int64_t key_heads,
                                   std::unique_ptr<CoreAttention> whole, Options options)
    : exchange_(ops, ranks, options.order),
      key_copies_(layout::key_copies(key_heads, ranks.size())),
      gathers_keys_(options.gathers_keys),
      whole_(std::move(whole)) {
  MS_CHECK(!gathers_keys_ || key_heads == 1, "a gather of ", key_heads, " heads of keys, of which a rank needs some");
}

HeadExchange::Exchange UlyssesAttention::to_heads(core::Tensor keys) {
  return gathers_keys_ ? exchange_.gather(std::move(keys)) : exchange_.to_heads(std::move(keys), key_copies_);
}

core::Tensor UlyssesAttention::take_heads(HeadExchange::Exchange& keys) {
  return gathers_keys_ ? exchange_.take_gathered(keys) : keys.take();
}

HeadExchange::Exchange UlyssesAttention::to_rows(core::Tensor gradients) {
  return gathers_keys_ ? exchange_.scatter(std::move(gradients)) : exchange_.to_rows(std::move(gradients));
}

core::Tensor UlyssesAttention::take_rows(HeadExchange::Exchange& gradients) {
  return gathers_keys_ ? gradients.take() : exchange_.take_rows(gradients, key_copies_);
}

ops::QkvTensors UlyssesAttention::to_heads(ops::QkvTensors qkv) {
  HeadExchange::Exchange q = exchange_.to_heads(std::move(qkv.q), 1);
  HeadExchange::Exchange k = to_heads(std::move(qkv.k));
  HeadExchange::Exchange v = to_heads(std::move(qkv.v));
  for (HeadExchange::Exchange* one : {&q, &k, &v}) one->finish();
  return {q.take(), take_heads(k), take_heads(v)};
}

void UlyssesAttention::refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  whole_->refill(to_heads(std::move(qkv)), saved, sequence);
}

void UlyssesAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  whole_->forward(to_heads(std::move(qkv)), saved, sequence);
  saved.whole_out = std::move(saved.out);
  HeadExchange::Exchange out = exchange_.to_rows(saved.whole_out.share());
  out.finish();
  saved.out = exchange_.take_rows(out, 1);
}

ops::QkvGradients UlyssesAttention::backward(core::Tensor dout, CoreAttentionActivations& saved,
                                             const SequenceContext& sequence) {
  saved.out = std::move(saved.whole_out);
  HeadExchange::Exchange whole = exchange_.to_heads(std::move(dout), 1);
  whole.finish();
  ops::QkvGradients gradients = whole_->backward(whole.take(), saved, sequence);
  HeadExchange::Exchange dq = exchange_.to_rows(std::move(gradients.dq));
  HeadExchange::Exchange dk = to_rows(std::move(gradients.dk));
  HeadExchange::Exchange dv = to_rows(std::move(gradients.dv));
  for (HeadExchange::Exchange* one : {&dq, &dk, &dv}) one->finish();
  return {exchange_.take_rows(dq, 1), take_rows(dk), take_rows(dv)};
}

}  // namespace ms::train
