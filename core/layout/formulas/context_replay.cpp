// Core attention's part of LayerReplay, of one rank and of ranks that share a sequence: train/model/core_attention.cpp,
// ulysses_attention.cpp, kv_gather_attention.cpp, ring_attention.cpp and adaptive_attention.cpp.
#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

void LayerReplay::core_attention(KvCachePolicy policy) {
  if (context_ranks_ == 1) return held_.add(bytes_.out + bytes_.lse);
  if (context_algorithm_ == ContextAlgorithm::kKvAllgather) {
    gather_keys();
    held_.add(bytes_.out + bytes_.lse);
    return held_.drop(context_ranks_ * (bytes_.key + bytes_.value));
  }
  if (context_parts_.ulysses == 1) return meet_keys(policy);
  exchange_heads();
  if (context_parts_.ring > 1) {
    meet_keys(policy);
  } else {
    held_.add(bytes_.out + bytes_.lse);
  }
  held_.add(bytes_.out);  // received
  held_.add(bytes_.out);
  held_.drop(bytes_.out);
}

// Queries, keys and values that are run again (CoreAttention::refill).
void LayerReplay::refill_core_attention() {
  if (context_ranks_ == 1 || context_algorithm_ == ContextAlgorithm::kKvAllgather) return;
  if (context_parts_.ulysses > 1) exchange_heads();
  if (is_adaptive(context_algorithm_)) return;
  for (const int ranks : {context_parts_.ring, context_parts_.window}) {
    if (ranks == 1) continue;
    held_.add(block());  // received
    held_.drop(block());
  }
}

// Of queries, keys and values; keys and values are sent as they are where they are gathered.
void LayerReplay::exchange_heads() {
  held_.add(bytes_.query);
  held_.drop(bytes_.query);
  held_.add(bytes_.query);  // received
  for (const int64_t own : {bytes_.key, bytes_.value}) {
    const int64_t received = bytes_.copies * own;
    if (!gathers_keys_of_heads_) {
      held_.add(received);
      held_.drop(own);
    }
    held_.add(received);
  }
  held_.drop(gathers_keys_of_heads_ ? bytes_.split() : bytes_.exchanged());
  for (const int64_t own : {bytes_.key, bytes_.value}) reorder_gathered(bytes_.copies * own);
}

// A copy in another order, of gathered keys of ranks that have a part from the front and one from the back.
void LayerReplay::reorder_gathered(int64_t bytes) {
  if (!gathers_keys_of_heads_ || !is_zigzag_) return;
  held_.add(bytes);
  held_.drop(bytes);
}

void LayerReplay::core_attention_backward(KvCachePolicy policy) {
  if (context_ranks_ == 1) {
    held_.add(bytes_.split());
    held_.drop(bytes_.out + bytes_.split() + bytes_.lse);
    return drop_attention_result();
  }
  if (context_algorithm_ == ContextAlgorithm::kKvAllgather) return gathered_keys_backward();
  if (context_parts_.ulysses == 1) {
    meet_keys_backward(policy);
    held_.drop(bytes_.out + bytes_.split() + cached_beside(policy) + bytes_.lse);
    return drop_attention_result();
  }
  drop_attention_result();
  held_.add(bytes_.out);  // sent
  held_.drop(bytes_.out);
  held_.add(bytes_.out);  // received
  held_.drop(bytes_.out);
  if (context_parts_.ring > 1) {
    meet_keys_backward(policy);
  } else {
    held_.add(bytes_.exchanged());
  }
  held_.drop(bytes_.out + bytes_.exchanged() + cached_beside(policy) + bytes_.lse + bytes_.out);
  exchange_heads_backward();
}

void LayerReplay::exchange_heads_backward() {
  held_.add(bytes_.query);  // received
  for (const int64_t own : {bytes_.key, bytes_.value}) {
    reorder_gathered(bytes_.copies * own);
    held_.add(gathers_keys_of_heads_ ? own : bytes_.copies * own);
  }
  held_.drop(bytes_.exchanged());
  held_.add(bytes_.query);
  held_.drop(bytes_.query);
  if (gathers_keys_of_heads_) return;
  for (const int64_t own : {bytes_.key, bytes_.value}) {
    held_.add(own);
    held_.drop(bytes_.copies * own);
  }
}

// Keys and values of all positions, in the end in their order.
void LayerReplay::gather_keys() {
  held_.add(context_ranks_ * (bytes_.key + bytes_.value));
  for (const int64_t bytes : {bytes_.key, bytes_.value}) {
    held_.add(context_ranks_ * bytes);
    held_.drop(context_ranks_ * bytes);
  }
}

void LayerReplay::gathered_keys_backward() {
  const int64_t whole = context_ranks_ * (bytes_.key + bytes_.value);
  gather_keys();
  held_.add(bytes_.query + whole);
  const int64_t of_front = whole / seq_length_ * front_keys_;
  held_.add(of_front);
  held_.drop(of_front);
  held_.drop(whole + bytes_.out + bytes_.split() + bytes_.lse);
  drop_attention_result();
  for (const int64_t bytes : {bytes_.key, bytes_.value}) {
    held_.add(context_ranks_ * bytes);
    held_.drop(context_ranks_ * bytes);
  }
  held_.add(bytes_.key + bytes_.value);
  held_.drop(whole);
}

int64_t LayerReplay::cached_of_block(KvCachePolicy policy) const {
  const bool keys = policy != KvCachePolicy::kNone, values = policy == KvCachePolicy::kFull;
  return bytes_.copies * ((keys ? bytes_.key : 0) + (values ? bytes_.value : 0));
}

int64_t LayerReplay::cached_beside(KvCachePolicy policy) const {
  return (int64_t{context_parts_.ring} * context_parts_.window - 1) * cached_of_block(policy);
}

void LayerReplay::ring(KvCachePolicy policy) {
  const int64_t sum = in_fp32(bytes_.out) + bytes_.lse, cached = cached_of_block(policy);
  const int64_t travelling = block() - cached;  // each block in memory of its own
  held_.add(cached_beside(policy) + cached);
  held_.drop(cached);
  held_.add(sum + bytes_.out + bytes_.lse);
  for (int outer = 0; outer < context_parts_.ring; ++outer) {
    const bool goes_on = outer + 1 < context_parts_.ring;
    if (goes_on) held_.add(travelling);  // of the next window
    for (int inner = 1; inner < context_parts_.window; ++inner) {
      held_.add(travelling);  // of the next step
      const bool is_sent_to_window = inner == 1 && goes_on;
      if (!is_sent_to_window) held_.drop(travelling);
    }
    if (!goes_on) break;
    const bool stands_alone =
        context_parts_.window > 1;  // what was sent to the next window is not the last of this one
    held_.drop(stands_alone ? 2 * travelling : travelling);
  }
  held_.drop(sum);
}

void LayerReplay::blocks() {
  const int64_t sum = in_fp32(bytes_.out) + bytes_.lse;
  held_.add(sum + bytes_.out + bytes_.lse);
  for (int round = 1; round < blocks_; ++round) {
    held_.add(block());
    if (round > 1) held_.drop(block());  // that has been attended
  }
  if (blocks_ > 1) held_.drop(block());
  held_.drop(sum);
}

void LayerReplay::blocks_backward() {
  held_.add(in_fp32(bytes_.query) + bytes_.query + block());
  if (blocks_ > 1) held_.add(block());
  for (int round = 1; round < blocks_; ++round) {
    if (round + 1 < blocks_) held_.add(block());  // of the next round
    held_.add(block());                           // gradients, which leave
    held_.drop(block());                          // that has been attended
    if (round > 1) held_.drop(block());           // gradients that have left
  }
  if (blocks_ > 1) held_.drop(block());
  held_.drop(in_fp32(bytes_.query));
}

void LayerReplay::ring_backward(KvCachePolicy policy) {
  const int64_t gradients = block(), travelling = block() - cached_of_block(policy);
  held_.add(in_fp32(bytes_.query) + bytes_.query);
  for (int outer = 0; outer < context_parts_.ring; ++outer) {
    const bool goes_on = outer + 1 < context_parts_.ring;
    if (goes_on) held_.add(travelling);   // of the next window
    if (outer > 0) held_.add(gradients);  // of other windows
    for (int inner = 0; inner < context_parts_.window; ++inner) {
      const bool goes_further = inner + 1 < context_parts_.window;
      if (goes_further) held_.add(travelling);  // of the next step
      if (inner > 0) held_.add(gradients);      // of other ranks
      held_.add(gradients);                     // of this one, which leave
      if (inner > 0) held_.drop(gradients);
      const bool is_sent_to_window = inner == 0 && goes_on;
      if (goes_further && !is_sent_to_window) held_.drop(travelling);
      if (inner > 0) held_.drop(gradients);  // that have left
    }
    if (outer > 0) held_.drop(gradients);
    if (goes_on) held_.drop(context_parts_.window > 1 ? 2 * travelling : travelling);
    if (outer > 0) held_.drop(gradients);  // that have left
  }
  held_.drop(in_fp32(bytes_.query));
}

}  // namespace ms::layout
