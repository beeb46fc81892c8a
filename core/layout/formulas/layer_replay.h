// What a layer's forward and backward allocate and free, in the order of train/model, for the peak of a stage's replay
// (memory.h). Sizes are bytes of one micro-batch on one tensor-parallel rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "core/layout/training_step.h"

namespace ms::layout {

// Bytes that are held, and the most that ever were.
class HeldBytes {
 public:
  void add(int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  void drop(int64_t bytes) { now_ -= bytes; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0, peak_ = 0;
};

// Sizes of the tensors of a layer that attends by an algorithm, where ranks share sequences. experts: whether it has
// experts in place of an MLP; of the members this concerns the sizes of slots alone.
struct LayerBytes {
  explicit LayerBytes(const TrainingStep& step, ContextAlgorithm algorithm, bool experts = false);

  int64_t hidden = 0, shard = 0;  // of the whole sequence, and of a rank's part with sequence parallelism
  int64_t gathered = 0;           // what a gather of the sequence takes; 0 without sequence parallelism
  int64_t query = 0, key = 0, value = 0, out = 0, lse = 0;
  int64_t gate = 0;         // of an output gate; 0 without
  int64_t copies = 1;       // of keys and values, where ranks that share a sequence exchange heads
  int64_t packed = 0;       // what linear_qkv gives: q, k, v and the gate, or a part of a query group's
  int64_t query_group = 0;  // all parts of it; 0 where no ranks share one
  int64_t product = 0, fc1 = 0;
  int64_t statistics = 0, head_statistics = 0;  // of norms

  int64_t split() const { return query + key + value; }
  int64_t exchanged() const { return query + copies * (key + value); }  // the same as the exchange gives them
  // Of a slot of a layer that has `slots`; 0 where the model has no such tensor.
  int64_t of(SavedSlot slot, const LayerSlots& slots) const {
    return of_slots_[slot_index(slot)] * cached_blocks(slot, slots.kv_cache());
  }
  // How many blocks of keys (kK) or values (kV) are kept: 1 unless the policy caches them.
  int64_t cached_blocks(SavedSlot slot, KvCachePolicy policy) const {
    const bool keys = slot == SavedSlot::kK && policy != KvCachePolicy::kNone;
    return keys || (slot == SavedSlot::kV && policy == KvCachePolicy::kFull) ? ring_ : 1;
  }

 private:
  int64_t ring_ = 1;  // ranks of a ring
  std::array<int64_t, kNumSavedSlots> of_slots_{};
};

// Sizes of the tensors of latent attention besides: whole ones are of the whole sequence, the others of a rank's part
// with sequence parallelism.
struct LatentBytes {
  explicit LatentBytes(const TrainingStep& step);

  int64_t hidden_whole = 0;                                  // what linear_q_proj reads, without a vector of queries
  int64_t query = 0, query_whole = 0, query_statistics = 0;  // the low-rank vector of queries; 0 without it
  int64_t key = 0, key_whole = 0, key_statistics = 0;        // that of keys and values
  int64_t shared = 0, shared_whole = 0;                      // the part of the keys that all heads share
  int64_t up = 0;                                            // what linear_kv_up_proj gives
  bool has_norms = false, keeps_shared = false;
};

// What a function of train/model allocates is added here, what it frees or hands on is dropped. One backward is
// replayed at a time.
class LayerReplay {
 public:
  LayerReplay(const TrainingStep& step, HeldBytes& held);
  const LayerBytes& bytes() const { return bytes_; }
  // Of any layer (global index).
  const LayerBytes& bytes_of(int64_t layer, bool experts = false);
  // The layer (global index) whose attention the next functions are of.
  void set_layer(int64_t layer);

  // The halves of each block: before and behind the sum over TP, which start_sum() posts.
  void start_attention(const LayerSlots& slots);
  void start_mlp(const LayerSlots& slots);
  void start_sum();
  void start_backward_sum();                                    // of the gradient of a block's input
  void finish_block();                                          // output: one shard, held
  void drop(const LayerSlots& slots, const LayerBytes& bytes);  // at the end of its forward, where the layer runs again
  // Whole blocks: a forward, and as much as the backward reads (FeedForward::refill).
  void attention(const LayerSlots& slots);
  void mlp(const LayerSlots& slots);
  void refill_mlp(const LayerSlots& slots);

  // deferred: gradients of weights wait; what they read stays held.
  void begin_backward(bool deferred) { deferred_ = deferred, operands_ = 0; }
  int64_t operands() const { return operands_; }  // that the backward has left
  // The gradient of the output is held. slots: of a layer that was refilled, LayerSlots::refilled.
  void start_mlp_backward(const LayerSlots& slots);
  void finish_mlp_backward();
  void start_attention_backward(const LayerSlots& slots);
  void finish_attention_backward();

  // The full sum of a row-parallel product is held; afterwards this rank's part of it.
  void leave_row_parallel() { start_sum(), finish_sum(); }

 private:
  void finish_sum();
  // Core attention: q, k and v are held; of a backward what the forward has left and the gradient of its result, in the
  // end the gradients of q, k and v (context_replay.cpp).
  void core_attention(KvCachePolicy policy);
  void core_attention_backward(KvCachePolicy policy);
  void refill_core_attention();
  void gather_keys();
  void gathered_keys_backward();
  void exchange_heads();
  void exchange_heads_backward();
  void reorder_gathered(int64_t bytes);
  // Keys and values of others, which come to the queries.
  void meet_keys(KvCachePolicy policy) { is_adaptive(context_algorithm_) ? blocks() : ring(policy); }
  void meet_keys_backward(KvCachePolicy policy) {
    is_adaptive(context_algorithm_) ? blocks_backward() : ring_backward(policy);
  }
  void ring(KvCachePolicy policy);
  void ring_backward(KvCachePolicy policy);
  // Of an adaptive plan: on the rank whose queries are the last ones, which needs the keys of all others.
  void blocks();
  void blocks_backward();
  // Bytes of a block of keys and values as a ring has them, and of those that a policy caches.
  int64_t block() const { return bytes_.copies * (bytes_.key + bytes_.value); }
  int64_t cached_of_block(KvCachePolicy policy) const;
  // What forward keeps of the other blocks.
  int64_t cached_beside(KvCachePolicy policy) const;
  // The same elements in fp32.
  int64_t in_fp32(int64_t bytes) const { return bytes / core::size_of(dtype_) * int64_t{sizeof(float)}; }
  // Of latent attention, in place of linear_qkv (latent_replay.cpp).
  void latent_project(const LayerSlots& slots);
  void latent_up_project();
  void latent_backward(const LayerSlots& slots);
  void latent_linear_backward(int64_t x, int64_t x_whole, int64_t dy, int64_t operand);
  int64_t kept_by_post_norm() const;
  void fill_fc1();
  void drop_operand(int64_t bytes);
  void column_parallel_backward(int64_t dy);
  void row_parallel_backward(int64_t x);
  void drop_attention_result();
  void drop_branch_gradient();
  void drop_output_gradient();

  // Of the layers of an algorithm, with experts and without.
  struct BytesOfKinds {
    LayerBytes dense, with_experts;
  };

  const TrainingStep& step_;
  const core::TransformerConfig& model_;
  int64_t context_ranks_;
  ContextAlgorithm context_algorithm_;
  ContextParts context_parts_;
  int64_t seq_length_;
  int64_t front_keys_;  // of those gathered, how many have a gradient of queries at the front for themselves
  int blocks_;          // that a rank attends by an adaptive plan
  bool gathers_keys_of_heads_;
  bool is_zigzag_;  // the ranks' share of a sequence
  core::DType dtype_;
  bool sequence_parallel_, posts_sums_;  // posts_sums_: a backward's, before the gradients of weights
  int64_t parts_;                        // of a product
  bool own_first_;                       // TensorOverlap::multiplies_own_first
  std::map<ContextAlgorithm, BytesOfKinds> bytes_of_algorithms_;
  LayerBytes bytes_;
  LatentBytes latent_;
  HeldBytes& held_;
  bool deferred_ = false;
  int64_t operands_ = 0;
};

}  // namespace ms::layout
