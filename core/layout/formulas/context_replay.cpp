// Core attention's part of LayerReplay, of one rank and of ranks that share a sequence: train/model/core_attention.cpp,
// ulysses_attention.cpp, kv_gather_attention.cpp and ring_attention.cpp.
#include <utility>

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

void LayerReplay::core_attention() {
  const int64_t key = bytes_.copies * bytes_.key, value = bytes_.copies * bytes_.value;
  if (context_ranks_ == 1) return held_.add(bytes_.out + bytes_.lse);
  if (context_algorithm_ == ContextAlgorithm::kKvAllgather) {
    gather_keys();
    held_.add(bytes_.out + bytes_.lse);
    return held_.drop(context_ranks_ * (bytes_.key + bytes_.value));
  }
  if (context_algorithm_ == ContextAlgorithm::kRing) return ring();
  for (const auto& [own, sent] :
       {std::pair{bytes_.query, bytes_.query}, std::pair{bytes_.key, key}, std::pair{bytes_.value, value}}) {
    held_.add(sent);
    held_.drop(own);
    held_.add(sent);  // received
  }
  held_.drop(bytes_.exchanged());
  held_.add(bytes_.out + bytes_.lse);
  held_.add(bytes_.out);  // received
  held_.add(bytes_.out);
  held_.drop(bytes_.out);
}

void LayerReplay::core_attention_backward() {
  const int64_t key = bytes_.copies * bytes_.key, value = bytes_.copies * bytes_.value;
  if (context_ranks_ == 1) {
    held_.add(bytes_.split());
    held_.drop(bytes_.out + bytes_.split() + bytes_.lse);
    return drop_operand(bytes_.out);
  }
  if (context_algorithm_ == ContextAlgorithm::kKvAllgather) return gathered_keys_backward();
  if (context_algorithm_ == ContextAlgorithm::kRing) return ring_backward();
  drop_operand(bytes_.out);
  held_.add(bytes_.out);  // sent
  held_.drop(bytes_.out);
  held_.add(bytes_.out);  // received
  held_.drop(bytes_.out);
  held_.add(bytes_.exchanged());
  held_.drop(bytes_.out + bytes_.exchanged() + bytes_.lse + bytes_.out);
  held_.add(bytes_.exchanged());  // received
  held_.drop(bytes_.exchanged());
  for (const auto& [own, received] :
       {std::pair{bytes_.query, bytes_.query}, std::pair{bytes_.key, key}, std::pair{bytes_.value, value}}) {
    held_.add(own);
    held_.drop(received);
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
  held_.add(whole / 2);  // of the queries at the front
  held_.drop(whole / 2);
  held_.drop(whole + bytes_.out + bytes_.split() + bytes_.lse);
  drop_operand(bytes_.out);
  for (const int64_t bytes : {bytes_.key, bytes_.value}) {
    held_.add(context_ranks_ * bytes);
    held_.drop(context_ranks_ * bytes);
  }
  held_.add(bytes_.key + bytes_.value);
  held_.drop(whole);
}

void LayerReplay::ring() {
  const int64_t sum = in_fp32(bytes_.out) + bytes_.lse, arrives = bytes_.key + bytes_.value;
  held_.add(sum + bytes_.out + bytes_.lse);
  held_.add(arrives);
  held_.drop(arrives);  // what was sent
  held_.drop(sum);
}

void LayerReplay::ring_backward() {
  const int64_t keys = bytes_.key + bytes_.value;
  held_.add(in_fp32(bytes_.query) + bytes_.query);
  for (int64_t step = 0; step < context_ranks_; ++step) {
    const bool is_first = step == 0, goes_on = step + 1 < context_ranks_;
    if (goes_on) held_.add(keys);    // of the next step
    if (!is_first) held_.add(keys);  // gradients of other ranks
    held_.add(keys);                 // of this one, which leave
    if (!is_first) held_.drop(keys);
    if (goes_on) held_.drop(keys);
    if (!is_first) held_.drop(keys);  // that have left
  }
  held_.drop(in_fp32(bytes_.query));
  held_.drop(bytes_.out + bytes_.split() + bytes_.lse);
  drop_operand(bytes_.out);
}

}  // namespace ms::layout
