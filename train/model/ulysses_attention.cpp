#include "train/model/ulysses_attention.h"

#include <utility>

#include "core/layout/context_parallel.h"

namespace ms::train {

UlyssesAttention::UlyssesAttention(ops::Context& ops, core::Communicator& ranks, int64_t key_heads,
                                   std::unique_ptr<CoreAttention> whole)
    : exchange_(ops, ranks), key_copies_(layout::key_copies(key_heads, ranks.size())), whole_(std::move(whole)) {}

void UlyssesAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  HeadExchange::Exchange q = exchange_.to_heads(std::move(qkv.q), 1);
  HeadExchange::Exchange k = exchange_.to_heads(std::move(qkv.k), key_copies_);
  HeadExchange::Exchange v = exchange_.to_heads(std::move(qkv.v), key_copies_);
  for (HeadExchange::Exchange* one : {&q, &k, &v}) one->finish();
  whole_->forward({q.take(), k.take(), v.take()}, saved, sequence);
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
  HeadExchange::Exchange dk = exchange_.to_rows(std::move(gradients.dk));
  HeadExchange::Exchange dv = exchange_.to_rows(std::move(gradients.dv));
  for (HeadExchange::Exchange* one : {&dq, &dk, &dv}) one->finish();
  return {exchange_.take_rows(dq, 1), exchange_.take_rows(dk, key_copies_), exchange_.take_rows(dv, key_copies_)};
}

}  // namespace ms::train
