#include "core/layout/formulas/expert_traffic.h"

#include <utility>

namespace ms::layout {
namespace {

using core::CommOp;

constexpr int64_t kNumber = sizeof(float);  // fp32 and int32

int64_t hidden_bytes(const TrainingStep& step) { return step.model.hidden_size * core::size_of(step.dtype); }

// Rows of a group of experts, or of all, of so many bytes travel to them, or back.
void add_rows(const TrainingStep& step, int64_t row_bytes, bool back, const AddTraffic& add) {
  TokenExchange of(step);
  of.rows /= of.groups, of.expert_rows /= of.groups;
  const RankGrid grid = step.layout.grid();
  const auto all_to_all = [&] {
    if (of.ep > 1) add(of.is_hierarchical ? Group::kTp : Group::kEp, CommOp::kAlltoall, of.rows * row_bytes);
  };
  const auto share = [&](CommOp op) {
    if (of.etp > 1) add(group_of_expert_parts(grid), op, of.expert_rows * row_bytes);
  };
  if (back) {
    share(CommOp::kReduceScatter);
    all_to_all();
  } else {
    all_to_all();
    share(CommOp::kAllgather);
  }
}

void add_all_ranks(const TrainingStep& step, CommOp op, int64_t bytes_each, const AddTraffic& add) {
  const TokenExchange of(step);
  add(of.is_hierarchical ? Group::kEpOuter : group_of_all_experts(step.layout.grid()), op, of.ranks * bytes_each);
}

// How many rows each of the ranks has for each expert.
void add_counts(const TrainingStep& step, Group group, int64_t ranks, const AddTraffic& add) {
  add(group, CommOp::kAllgather, ranks * step.model.num_experts * int64_t{sizeof(int64_t)});
}

}  // namespace

TokenExchange::TokenExchange(const TrainingStep& step)
    : exists(step.model.has_experts() && step.layout.ranks_of_experts() > 1),
      gathers(exists && (step.gathers_tokens || step.exchanges_hierarchically)),
      is_hierarchical(exists && step.exchanges_hierarchically),
      ranks(exists ? step.layout.ranks_of_experts() / (is_hierarchical ? step.layout.tensor_model_parallel_size : 1)
                   : 1),
      ep(exists ? step.layout.expert_model_parallel_size : 1),
      etp(exists ? step.layout.expert_tensor_parallel_size : 1),
      groups(exists ? step.expert_groups : 1),
      tokens(step.tokens() / (step.sequence_parallel ? step.layout.tensor_model_parallel_size : 1)),
      rows(tokens * step.model.moe_router_topk),
      expert_rows(rows * etp) {}

void add_dispatch(const TrainingStep& step, const AddTraffic& add) {
  const TokenExchange of(step);
  const int64_t tp = step.layout.tensor_model_parallel_size, cp = step.layout.context_parallel_size;
  const auto add_of_all_parts = [&](int64_t bytes_each) {
    if (tp > 1) add(Group::kTp, CommOp::kAllgather, tp * bytes_each);
    if (cp > 1) add(Group::kCp, CommOp::kAllgather, cp * tp * bytes_each);
  };
  if (step.gathers_logits) add_of_all_parts(of.tokens * step.model.num_experts * kNumber);
  for (int i = 0; step.gathers_choices && i < 2; ++i) add_of_all_parts(of.rows * kNumber);  // and weights
  if (!of.exists) return;
  if (of.gathers) {
    if (step.has_own_lengths) add_all_ranks(step, CommOp::kAllgather, int64_t{sizeof(int64_t)}, add);  // how many
    for (int i = 0; i < 2; ++i) add_all_ranks(step, CommOp::kAllgather, of.rows * kNumber, add);  // experts, weights
    add_all_ranks(step, CommOp::kAllgather, of.tokens * hidden_bytes(step), add);
    if (!of.is_hierarchical) return;
  }
  for (int64_t group = 0; group < of.groups; ++group) {
    add_counts(step, of.is_hierarchical ? Group::kTp : group_of_all_experts(step.layout.grid()),
               of.is_hierarchical ? tp : of.ranks, add);
    add_rows(step, hidden_bytes(step), /*back=*/false, add);
  }
}

void add_dispatch_again(const TrainingStep& step, const AddTraffic& add) {
  const TokenExchange of(step);
  if (!of.exists) return;
  if (of.gathers) add_all_ranks(step, CommOp::kAllgather, of.tokens * hidden_bytes(step), add);
  if (!of.gathers || of.is_hierarchical) add_rows(step, hidden_bytes(step), /*back=*/false, add);
}

void add_combine(const TrainingStep& step, const AddTraffic& add) {
  const TokenExchange of(step);
  if (!of.exists) return;
  for (int64_t group = 0; group < of.groups && (!of.gathers || of.is_hierarchical); ++group)
    add_rows(step, hidden_bytes(step), /*back=*/true, add);
  if (of.gathers) add_all_ranks(step, CommOp::kReduceScatter, of.tokens * hidden_bytes(step), add);
}

void add_expert_forward(const TrainingStep& step, const AddTraffic& add) {
  add_dispatch(step, add);
  if (step.adapts_recompute && step.layout.tensor_model_parallel_size > 1)
    add(Group::kTp, CommOp::kAllreduce, int64_t{sizeof(double)});
  if (step.adapts_recompute && (step.gathers_logits || step.gathers_choices) && step.layout.context_parallel_size > 1)
    add(Group::kCp, CommOp::kAllreduce, int64_t{sizeof(double)});
  add_combine(step, add);
}

void add_expert_backward(const TrainingStep& step, const AddTraffic& add) {
  const TokenExchange of(step);
  const int tp = step.layout.tensor_model_parallel_size;
  for (const auto& [group, ranks] :
       {std::pair{Group::kTp, tp}, std::pair{Group::kCp, step.layout.context_parallel_size}}) {
    if (ranks > 1 && step.has_balance_losses)
      add(group, CommOp::kAllreduce, step.micro_batch_size * step.model.num_experts * int64_t{sizeof(double)});
  }
  if (step.layout.data_parallel_size > 1 && step.has_global_balance_loss)
    add(Group::kDpCp, CommOp::kAllreduce, step.model.num_experts * int64_t{sizeof(double)});
  if (!of.exists) return;
  if (of.gathers) {
    add_all_ranks(step, CommOp::kAllgather, of.tokens * hidden_bytes(step), add);
    add_all_ranks(step, CommOp::kReduceScatter, of.tokens * hidden_bytes(step), add);
    add_all_ranks(step, CommOp::kReduceScatter, of.rows * kNumber, add);
    if (!of.is_hierarchical) return;
  }
  for (int64_t group = 0; group < of.groups; ++group) {
    for (const int64_t row_bytes : {hidden_bytes(step), kNumber}) {
      add_rows(step, row_bytes, /*back=*/false, add);
      add_rows(step, row_bytes, /*back=*/true, add);
    }
  }
}

}  // namespace ms::layout
