// What the ranks that share a sequence exchange in the core attention of a layer (train/model/ulysses_attention.h,
// kv_gather_attention.h, ring_attention.h, adaptive_attention.h).
#pragma once

#include <cstdint>

#include "core/comm/comm_op.h"
#include "core/function_ref.h"
#include "core/layout/process_group_table.h"
#include "core/layout/training_step.h"

namespace ms::layout {

// Calls of an operation of a group, with so many bytes of the full buffer each.
struct ContextCalls {
  Group group = Group::kCp;
  core::CommOp op;
  int64_t bytes = 0, calls = 1;
  int to = 0;  // of messages that are sent: the receiver's number in the group, less this rank's
};
using AddContextTraffic = core::FunctionRef<void(const ContextCalls& calls)>;

// Of one micro-batch through a layer, by its algorithm, on rank `cp_rank` of those that share a sequence, of which
// there must be some. policy: the layer's. Adaptive algorithms: of samples without documents.
void add_context_forward(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank,
                         const AddContextTraffic& add);
// Of queries, keys and values that are run again before the backward (CoreAttention::refill).
void add_context_refill(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank,
                        const AddContextTraffic& add);
void add_context_backward(const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank, KvCachePolicy policy,
                          const AddContextTraffic& add);

}  // namespace ms::layout
