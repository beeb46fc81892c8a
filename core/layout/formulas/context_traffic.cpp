#include "core/layout/formulas/context_traffic.h"

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

using core::CommOp;

void add_context_forward(const TrainingStep& step, const AddContextTraffic& add) {
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  switch (step.context_algorithm) {
    case ContextAlgorithm::kUlysses:
      for (const int64_t bytes : {of.query, of.copies * of.key, of.copies * of.value, of.out})
        add(CommOp::kAlltoall, bytes, 1);
      return;
    case ContextAlgorithm::kKvAllgather:
      for (const int64_t bytes : {of.key, of.value}) add(CommOp::kAllgather, ranks * bytes, 1);
      return;
  }
}

void add_context_backward(const TrainingStep& step, const AddContextTraffic& add) {
  if (step.context_algorithm == ContextAlgorithm::kUlysses) return add_context_forward(step, add);  // the same, back
  const LayerBytes of(step);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const CommOp op : {CommOp::kAllgather, CommOp::kReduceScatter})
    for (const int64_t bytes : {of.key, of.value}) add(op, ranks * bytes, 1);
}

}  // namespace ms::layout
