// Core attention of ranks that share a sequence and exchange heads (Ulysses, Jacobs et al. 2023; MindSpeed's
// ulysses_cp_algo, Megatron's --cp-comm-type a2a): an all-to-all gives each rank all positions of its part of the
// heads, another core attention attends these, and the inverse returns the result. Masks are those of whole sequences.
// Where all ranks need the one head of keys and values that there is, these can be gathered instead, without copies of
// it (MindSpeed's --use-ulysses-allgather-kv).
// Where several such groups share a sequence (hybrid_cp_algo, a2a+p2p), "all positions" are those of the group, and the
// other core attention is a ring. Where each rank has a part from the front of the sequence and one from the back,
// those of a group's neighbours, in order, are again a part from the front and one from the back: a ring's, or the
// whole.
#pragma once

#include <memory>

#include "train/model/core_attention.h"
#include "train/parallel/head_exchange.h"

namespace ms::train {

class UlyssesAttention : public CoreAttention {
 public:
  struct Options {
    core::BlockOrder order = core::BlockOrder::kByRank;  // of the positions that ranks have
    bool gathers_keys = false;                           // key_heads is 1
  };
  // ranks: those that share a sequence; their number divides that of the query heads. key_heads: of keys and values,
  // which are copied where ranks would have a part of one. whole: attends all positions of the heads that this rank has
  // then.
  UlyssesAttention(ops::Context& ops, core::Communicator& ranks, int64_t key_heads,
                   std::unique_ptr<CoreAttention> whole, Options options);

  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;
  void refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;

 private:
  // All positions of this rank's part of the heads.
  ops::QkvTensors to_heads(ops::QkvTensors qkv);
  // Of keys and values, or their gradients.
  HeadExchange::Exchange to_heads(core::Tensor keys);
  core::Tensor take_heads(HeadExchange::Exchange& keys);
  HeadExchange::Exchange to_rows(core::Tensor gradients);
  core::Tensor take_rows(HeadExchange::Exchange& gradients);

  HeadExchange exchange_;
  int64_t key_copies_;
  bool gathers_keys_;
  std::unique_ptr<CoreAttention> whole_;
};

}  // namespace ms::train
