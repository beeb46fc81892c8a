#include "core/layout/formulas/context_traffic.h"

#include <utility>

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

using core::CommOp;

namespace {

// The all-to-alls of queries, keys, values and what attention makes of them, or of their gradients.
// keys: what takes their place where keys and values are gathered over the ranks that exchange heads.
void add_exchanges(const TrainingStep& step, CommOp keys, const AddContextTraffic& add) {
  if (step.context_parts.ulysses == 1) return;
  const LayerBytes of(step);
  const Group group = group_of_heads(step.grid());
  for (const int64_t bytes : {of.query, of.out}) add({.group = group, .op = CommOp::kAlltoall, .bytes = bytes});
  const CommOp op = step.gathers_keys_of_heads ? keys : CommOp::kAlltoall;
  for (const int64_t bytes : {of.copies * of.key, of.copies * of.value})
    add({.group = group, .op = op, .bytes = bytes});
}

// What goes to the neighbour on one side, from that on the other: within each window, and to the next one.
struct Hops {
  int64_t of_keys = 0, of_values = 0;  // how often each block goes on
  int to = 1;
};
void add_hops(const TrainingStep& step, const Hops& hops, const AddContextTraffic& add) {
  const LayerBytes of(step);
  const int64_t windows = step.context_parts.ring;
  const auto add_ring = [&](Group group, int64_t steps) {
    for (const auto& [times, bytes] :
         {std::pair{hops.of_keys, of.copies * of.key}, std::pair{hops.of_values, of.copies * of.value}}) {
      if (times * steps == 0) continue;
      add({.group = group, .op = CommOp::kSend, .bytes = bytes, .calls = times * steps, .to = hops.to});
      add({.group = group, .op = CommOp::kRecv, .bytes = bytes, .calls = times * steps});
    }
  };
  add_ring(Group::kCpWindow, windows * (step.context_parts.window - 1));
  add_ring(group_of_ring(step.grid()), windows - 1);
}

}  // namespace

void add_context_forward(const TrainingStep& step, const AddContextTraffic& add) {
  if (step.context_algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, CommOp::kAllgather, add);
    return add_hops(step, {.of_keys = 1, .of_values = 1, .to = 1}, add);
  }
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const int64_t bytes : {of.key, of.value}) add({.op = CommOp::kAllgather, .bytes = ranks * bytes});
}

void add_context_backward(const TrainingStep& step, KvCachePolicy policy, const AddContextTraffic& add) {
  if (step.context_algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, CommOp::kReduceScatter, add);
    // Gradients, and what forward has not kept.
    const bool has_keys = policy != KvCachePolicy::kNone, has_values = policy == KvCachePolicy::kFull;
    return add_hops(step, {.of_keys = has_keys ? 1 : 2, .of_values = has_values ? 1 : 2, .to = -1}, add);
  }
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const CommOp op : {CommOp::kAllgather, CommOp::kReduceScatter})
    for (const int64_t bytes : {of.key, of.value}) add({.op = op, .bytes = ranks * bytes});
}

}  // namespace ms::layout
