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
  if (context_parts_.ulysses == 1) return ring(key + value);
  for (const auto& [own, sent] :
       {std::pair{bytes_.query, bytes_.query}, std::pair{bytes_.key, key}, std::pair{bytes_.value, value}}) {
    held_.add(sent);
    held_.drop(own);
    held_.add(sent);  // received
  }
  held_.drop(bytes_.exchanged());
  if (context_parts_.ring > 1) {
    ring(key + value);
  } else {
    held_.add(bytes_.out + bytes_.lse);
  }
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
  if (context_parts_.ulysses == 1) {
    ring_backward(key + value);
    held_.drop(bytes_.out + bytes_.split() + bytes_.lse);
    return drop_operand(bytes_.out);
  }
  drop_operand(bytes_.out);
  held_.add(bytes_.out);  // sent
  held_.drop(bytes_.out);
  held_.add(bytes_.out);  // received
  held_.drop(bytes_.out);
  if (context_parts_.ring > 1) {
    ring_backward(key + value);
  } else {
    held_.add(bytes_.exchanged());
  }
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

void LayerReplay::ring(int64_t keys) {
  const int64_t sum = in_fp32(bytes_.out) + bytes_.lse;
  held_.add(sum + bytes_.out + bytes_.lse);
  for (int outer = 0; outer < context_parts_.ring; ++outer) {
    const bool goes_on = outer + 1 < context_parts_.ring;
    if (goes_on) held_.add(keys);  // of the next window
    for (int inner = 1; inner < context_parts_.window; ++inner) {
      held_.add(keys);  // of the next step
      const bool is_sent_to_window = inner == 1 && goes_on;
      if (!is_sent_to_window) held_.drop(keys);
    }
    if (!goes_on) break;
    const bool stands_alone =
        context_parts_.window > 1;  // what was sent to the next window is not the last of this one
    held_.drop(stands_alone ? 2 * keys : keys);
  }
  held_.drop(sum);
}

void LayerReplay::ring_backward(int64_t keys) {
  held_.add(in_fp32(bytes_.query) + bytes_.query);
  for (int outer = 0; outer < context_parts_.ring; ++outer) {
    const bool goes_on = outer + 1 < context_parts_.ring;
    if (goes_on) held_.add(keys);    // of the next window
    if (outer > 0) held_.add(keys);  // gradients of other windows
    for (int inner = 0; inner < context_parts_.window; ++inner) {
      const bool goes_further = inner + 1 < context_parts_.window;
      if (goes_further) held_.add(keys);  // of the next step
      if (inner > 0) held_.add(keys);     // gradients of other ranks
      held_.add(keys);                    // of this one, which leave
      if (inner > 0) held_.drop(keys);
      const bool is_sent_to_window = inner == 0 && goes_on;
      if (goes_further && !is_sent_to_window) held_.drop(keys);
      if (inner > 0) held_.drop(keys);  // that have left
    }
    if (outer > 0) held_.drop(keys);
    if (goes_on) held_.drop(context_parts_.window > 1 ? 2 * keys : keys);
    if (outer > 0) held_.drop(keys);  // that have left
  }
  held_.drop(in_fp32(bytes_.query));
}

}  // namespace ms::layout
