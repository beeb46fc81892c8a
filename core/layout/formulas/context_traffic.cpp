#include "core/layout/formulas/context_traffic.h"

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

using core::CommOp;

namespace {

// The all-to-alls of queries, keys, values and what attention makes of them, or of their gradients.
void add_exchanges(const TrainingStep& step, const AddContextTraffic& add) {
  if (step.context_parts.ulysses == 1) return;
  const LayerBytes of(step);
  for (const int64_t bytes : {of.query, of.copies * of.key, of.copies * of.value, of.out})
    add({.group = group_of_heads(step.grid()), .op = CommOp::kAlltoall, .bytes = bytes});
}

// Keys and values, or their gradients, to the neighbour on one side, from that on the other: within each window, and to
// the next one.
void add_hops(const TrainingStep& step, int64_t times, int to, const AddContextTraffic& add) {
  const LayerBytes of(step);
  const int64_t windows = step.context_parts.ring;
  const auto add_ring = [&](Group group, int64_t hops) {
    if (hops == 0) return;
    for (const int64_t bytes : {of.copies * of.key, of.copies * of.value}) {
      add({.group = group, .op = CommOp::kSend, .bytes = bytes, .calls = times * hops, .to = to});
      add({.group = group, .op = CommOp::kRecv, .bytes = bytes, .calls = times * hops});
    }
  };
  add_ring(Group::kCpWindow, windows * (step.context_parts.window - 1));
  add_ring(group_of_ring(step.grid()), windows - 1);
}

}  // namespace

void add_context_forward(const TrainingStep& step, ContextAlgorithm algorithm, const AddContextTraffic& add) {
  if (algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, add);
    return add_hops(step, 1, 1, add);
  }
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const int64_t bytes : {of.key, of.value}) add({.op = CommOp::kAllgather, .bytes = ranks * bytes});
}

void add_context_backward(const TrainingStep& step, ContextAlgorithm algorithm, const AddContextTraffic& add) {
  if (algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, add);  // the same, back
    return add_hops(step, 2, -1, add);
  }
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const CommOp op : {CommOp::kAllgather, CommOp::kReduceScatter})
    for (const int64_t bytes : {of.key, of.value}) add({.op = op, .bytes = ranks * bytes});
}

}  // namespace ms::layout
