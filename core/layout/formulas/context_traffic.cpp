#include "core/layout/formulas/context_traffic.h"

#include <utility>

#include "core/layout/adaptive_plan.h"
#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

using core::CommOp;

namespace {

// The all-to-alls of queries, keys and values. keys: what takes their place where keys and values are gathered over the
// ranks that exchange heads.
void add_exchanges_to_heads(const TrainingStep& step, ContextAlgorithm algorithm, CommOp keys,
                            const AddContextTraffic& add) {
  const ContextParts parts = step.context_parts_of(algorithm);
  if (parts.ulysses == 1) return;
  const LayerBytes of(step, algorithm);
  const Group group = group_of_heads(step.grid(), parts);
  add({.group = group, .op = CommOp::kAlltoall, .bytes = of.query});
  const CommOp op = step.gathers_keys_of_heads ? keys : CommOp::kAlltoall;
  for (const int64_t bytes : {of.copies * of.key, of.copies * of.value})
    add({.group = group, .op = op, .bytes = bytes});
}

// These and that of what attention makes of them, or those of their gradients.
void add_exchanges(const TrainingStep& step, ContextAlgorithm algorithm, CommOp keys, const AddContextTraffic& add) {
  const ContextParts parts = step.context_parts_of(algorithm);
  if (parts.ulysses == 1) return;
  add_exchanges_to_heads(step, algorithm, keys, add);
  const int64_t bytes = LayerBytes(step, algorithm).out;
  add({.group = group_of_heads(step.grid(), parts), .op = CommOp::kAlltoall, .bytes = bytes});
}

// What goes to the neighbour on one side, from that on the other: within each window, and to the next one.
struct Hops {
  int64_t of_keys = 0, of_values = 0;  // how often each block goes on
  int to = 1;
};
void add_hops(const TrainingStep& step, ContextAlgorithm algorithm, const Hops& hops, const AddContextTraffic& add) {
  const LayerBytes of(step, algorithm);
  const ContextParts parts = step.context_parts_of(algorithm);
  const int64_t windows = parts.ring;
  const auto add_ring = [&](Group group, int64_t steps) {
    for (const auto& [times, bytes] :
         {std::pair{hops.of_keys, of.copies * of.key}, std::pair{hops.of_values, of.copies * of.value}}) {
      if (times * steps == 0) continue;
      add({.group = group, .op = CommOp::kSend, .bytes = bytes, .calls = times * steps, .to = hops.to});
      add({.group = group, .op = CommOp::kRecv, .bytes = bytes, .calls = times * steps});
    }
  };
  add_ring(Group::kCpWindow, windows * (parts.window - 1));
  add_ring(group_of_ring(step.grid(), parts), windows - 1);
}

// Keys and values of the blocks that ranks attend of others, and back their gradients.
void add_blocks(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank, bool has_gradients,
                const AddContextTraffic& add) {
  const LayerBytes of(step, algorithm);
  const ContextParts parts = step.context_parts_of(algorithm);
  const Group group = group_of_ring(step.grid(), parts);
  const int rank = cp_rank / parts.ulysses;
  const auto message = [&](const BlockTransfer& block) {
    if (block.from != rank && block.to != rank) return;
    for (const int64_t bytes : {of.copies * of.key, of.copies * of.value}) {
      if (block.from == rank) {
        add({.group = group, .op = CommOp::kSend, .bytes = bytes, .to = block.to - rank});
      } else {
        add({.group = group, .op = CommOp::kRecv, .bytes = bytes});
      }
    }
  };
  const std::shared_ptr<const AdaptivePlan> plan = step.adaptive_plan();
  for (const auto& round : plan->rounds) {
    for (const BlockTransfer& block : round) {
      message(block);
      if (has_gradients) message({.from = block.to, .to = block.from});
    }
  }
}

}  // namespace

void add_context_forward(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank,
                         const AddContextTraffic& add) {
  if (algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, algorithm, CommOp::kAllgather, add);
    if (is_adaptive(algorithm)) return add_blocks(step, algorithm, cp_rank, /*has_gradients=*/false, add);
    return add_hops(step, algorithm, {.of_keys = 1, .of_values = 1, .to = 1}, add);
  }
  const LayerBytes of(step, algorithm);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const int64_t bytes : {of.key, of.value}) add({.op = CommOp::kAllgather, .bytes = ranks * bytes});
}

void add_context_refill(const TrainingStep& step, ContextAlgorithm algorithm, int, const AddContextTraffic& add) {
  if (algorithm == ContextAlgorithm::kKvAllgather) return;
  add_exchanges_to_heads(step, algorithm, CommOp::kAllgather, add);
  if (is_adaptive(algorithm)) return;
  const LayerBytes of(step, algorithm);
  const auto add_hop = [&](Group group, int64_t ranks) {
    for (const int64_t bytes : {of.copies * of.key, of.copies * of.value}) {
      if (ranks == 1) continue;
      add({.group = group, .op = CommOp::kSend, .bytes = bytes, .to = -1});
      add({.group = group, .op = CommOp::kRecv, .bytes = bytes});
    }
  };
  const ContextParts parts = step.context_parts_of(algorithm);
  add_hop(group_of_ring(step.grid(), parts), parts.ring);
  add_hop(Group::kCpWindow, parts.window);
}

void add_context_backward(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank, KvCachePolicy policy,
                          const AddContextTraffic& add) {
  if (algorithm != ContextAlgorithm::kKvAllgather) {
    add_exchanges(step, algorithm, CommOp::kReduceScatter, add);
    if (is_adaptive(algorithm)) return add_blocks(step, algorithm, cp_rank, /*has_gradients=*/true, add);
    // Gradients, and what forward has not kept.
    const bool has_keys = policy != KvCachePolicy::kNone, has_values = policy == KvCachePolicy::kFull;
    return add_hops(step, algorithm, {.of_keys = has_keys ? 1 : 2, .of_values = has_values ? 1 : 2, .to = -1}, add);
  }
  const LayerBytes of(step, algorithm);
  const int64_t ranks = step.layout.context_parallel_size;
  for (const CommOp op : {CommOp::kAllgather, CommOp::kReduceScatter})
    for (const int64_t bytes : {of.key, of.value}) add({.op = op, .bytes = ranks * bytes});
}

}  // namespace ms::layout
