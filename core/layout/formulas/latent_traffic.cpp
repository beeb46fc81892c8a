#include "core/layout/formulas/latent_traffic.h"

namespace ms::layout {
namespace {

using core::CommOp;

// Bytes of the whole sequence.
struct Sent {
  explicit Sent(const TrainingStep& step) {
    const int64_t element = step.tokens() * core::size_of(step.dtype);
    const core::TransformerConfig& model = step.model;
    queries = element * (model.q_lora_rank > 0 ? model.q_lora_rank : model.hidden_size);
    keys = element * model.kv_lora_rank;
    shared = element * model.qk_pos_emb_head_dim;
  }
  int64_t queries, keys, shared;  // what linear_q_up_proj or linear_q_proj reads, linear_kv_up_proj, the shared keys
};

}  // namespace

void add_latent_recompute(const TrainingStep& step, const AddTpTraffic& add) {
  if (!step.sequence_parallel) return;
  const Sent of(step);
  for (const int64_t bytes : {of.queries, of.keys}) add(CommOp::kAllgather, bytes);
}

void add_latent_forward(const TrainingStep& step, const AddTpTraffic& add) {
  if (step.sequence_parallel) add(CommOp::kAllgather, Sent(step).shared);
  add_latent_recompute(step, add);
}

void add_latent_backward(const TrainingStep& step, int64_t layer, const AddTpTraffic& add) {
  if (step.layout.tensor_model_parallel_size == 1) return;
  const Sent of(step);
  const char* queries = step.model.q_lora_rank > 0 ? "self_attention.linear_q_up_proj" : "self_attention.linear_q_proj";
  if (step.sequence_parallel) {  // for the gradients of weights
    if (!is_frozen(step, layer, queries)) add(CommOp::kAllgather, of.queries);
    if (!is_frozen(step, layer, "self_attention.linear_kv_up_proj")) add(CommOp::kAllgather, of.keys);
  }
  for (const int64_t bytes : {of.queries, of.keys, of.shared})
    add(step.sequence_parallel ? CommOp::kReduceScatter : CommOp::kAllreduce, bytes);
}

}  // namespace ms::layout
