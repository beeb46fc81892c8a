// What the exchange of tokens with experts on several ranks sends, per layer and micro-batch: the calls of
// train/model/token_dispatcher.cpp and train/model/router.cpp, if all experts have the same number of tokens
// (--fix-router; tokens x k is a multiple of the experts).
#pragma once

#include <cstdint>

#include "core/comm/comm_op.h"
#include "core/function_ref.h"
#include "core/layout/process_group_table.h"
#include "core/layout/training_step.h"

namespace ms::layout {

// Sizes of the exchange on each rank. All 0 but tokens and rows if there is none.
struct TokenExchange {
  explicit TokenExchange(const TrainingStep& step);

  bool exists = false;           // experts are on several ranks
  bool gathers = false;          // tokens of several ranks to each
  bool is_hierarchical = false;  // and within blocks of tp ranks rows go to their experts; etp is 1
  int64_t ranks = 1;             // whose tokens are gathered, or that exchange rows: etp x ep, or the number of blocks
  int64_t ep = 1, etp = 1;
  int64_t groups = 1;       // of the experts of a rank, whose rows are exchanged apart
  int64_t tokens = 0;       // of this rank: with sequence parallelism, of its part
  int64_t rows = 0;         // tokens x k
  int64_t expert_rows = 0;  // that the experts here have: rows x etp
};

using AddTraffic = core::FunctionRef<void(Group, core::CommOp, int64_t payload_bytes)>;

// To the experts, for what linear_fc1 reads.
void add_dispatch(const TrainingStep& step, const AddTraffic& add);
// The same tokens once more, for the backward (--moe-zero-memory).
void add_dispatch_again(const TrainingStep& step, const AddTraffic& add);
// The way back.
void add_combine(const TrainingStep& step, const AddTraffic& add);
// Dispatch and the way back.
void add_expert_forward(const TrainingStep& step, const AddTraffic& add);
void add_expert_backward(const TrainingStep& step, const AddTraffic& add);

}  // namespace ms::layout
