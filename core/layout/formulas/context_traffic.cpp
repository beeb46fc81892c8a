#include "core/layout/formulas/context_traffic.h"

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

using core::CommOp;

namespace {

// Keys and values, or their gradients, to the neighbour on one side, from that on the other.
void add_hops(const TrainingStep& step, int64_t times, int to, const AddContextTraffic& add) {
  const LayerBytes of(step);
  const int64_t hops = times * (step.layout.context_parallel_size - 1);
  for (const int64_t bytes : {of.key, of.value}) {
    add({.op = CommOp::kSend, .bytes = bytes, .calls = hops, .to = to});
    add({.op = CommOp::kRecv, .bytes = bytes, .calls = hops});
  }
}

}  // namespace

void add_context_forward(const TrainingStep& step, const AddContextTraffic& add) {
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  switch (step.context_algorithm) {
    case ContextAlgorithm::kUlysses:
      for (const int64_t bytes : {of.query, of.copies * of.key, of.copies * of.value, of.out})
        add({.op = CommOp::kAlltoall, .bytes = bytes});
      return;
    case ContextAlgorithm::kKvAllgather:
      for (const int64_t bytes : {of.key, of.value}) add({.op = CommOp::kAllgather, .bytes = ranks * bytes});
      return;
    case ContextAlgorithm::kRing:
      return add_hops(step, 1, 1, add);
  }
}

void add_context_backward(const TrainingStep& step, const AddContextTraffic& add) {
  if (step.context_algorithm == ContextAlgorithm::kUlysses) return add_context_forward(step, add);  // the same, back
  if (step.context_algorithm == ContextAlgorithm::kRing) return add_hops(step, 2, -1, add);
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const CommOp op : {CommOp::kAllgather, CommOp::kReduceScatter})
    for (const int64_t bytes : {of.key, of.value}) add({.op = op, .bytes = ranks * bytes});
}

}  // namespace ms::layout
