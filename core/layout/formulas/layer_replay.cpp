#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

LayerBytes::LayerBytes(const TrainingStep& step) {
  constexpr int64_t kFp32 = sizeof(float);
  const core::TransformerConfig& model = step.model;
  const int64_t tp = step.layout.tensor_model_parallel_size;
  const int64_t element = core::size_of(step.dtype), tokens = step.tokens();
  hidden = tokens * model.hidden_size * element;
  shard = step.sequence_parallel ? hidden / tp : hidden;
  gathered = step.sequence_parallel ? hidden : 0;
  query = tokens * model.num_attention_heads / tp * model.kv_channels * element;
  key = tokens * model.query_groups() / tp * model.kv_channels * element;
  lse = tokens * model.num_attention_heads / tp * kFp32;
  product = tokens * model.ffn_hidden_size / tp * element;
  fc1 = tokens * model.fc1_rows() / tp * element;
  const int64_t moments = model.has_layer_norm() ? 2 : 1;
  statistics = moments * tokens / (step.sequence_parallel ? tp : 1) * kFp32;
  const int64_t normed_heads = model.qk_layernorm_all_heads ? 2 : model.num_attention_heads + model.query_groups();
  head_statistics = model.qk_layernorm ? moments * tokens * normed_heads / tp * kFp32 : 0;
}

LayerReplay::LayerReplay(const TrainingStep& step, HeldBytes& held)
    : model_(step.model), sequence_parallel_(step.sequence_parallel), bytes_(step), held_(held) {}

void LayerReplay::start_sum() {
  if (sequence_parallel_) held_.add(bytes_.shard);
}
void LayerReplay::finish_sum() {
  if (sequence_parallel_) held_.drop(bytes_.hidden);
}

void LayerReplay::start_attention(const RecomputedOutputs& recomputed) {
  held_.add(bytes_.shard + bytes_.statistics);  // normed
  held_.add(bytes_.gathered);
  held_.add(bytes_.packed());
  held_.drop(bytes_.gathered);
  if (recomputed.norms) held_.drop(bytes_.shard);
  held_.add(bytes_.packed());  // q, k, v
  held_.drop(bytes_.packed());
  if (model_.qk_layernorm) held_.add(bytes_.query + bytes_.key + bytes_.head_statistics);
  held_.add(bytes_.query + bytes_.lse);  // out
  held_.add(bytes_.hidden);
}

void LayerReplay::finish_block() {
  finish_sum();
  if (model_.post_norm) held_.add(bytes_.shard + bytes_.statistics);  // its input is kept
}

void LayerReplay::fill_fc1() {
  held_.add(bytes_.gathered);
  held_.add(bytes_.fc1);
  held_.drop(bytes_.gathered);
}

void LayerReplay::start_mlp(const RecomputedOutputs& recomputed) {
  held_.add(bytes_.shard + bytes_.statistics);
  fill_fc1();
  if (recomputed.norms || recomputed.mlp) held_.drop(bytes_.shard);
  held_.add(bytes_.product);
  if (recomputed.mlp) held_.drop(bytes_.fc1);
  held_.add(bytes_.hidden);
  if (recomputed.activation || recomputed.mlp) held_.drop(bytes_.product);
}

void LayerReplay::attention(const RecomputedOutputs& recomputed) {
  start_attention(recomputed);
  start_sum();
  finish_block();
}

void LayerReplay::mlp(const RecomputedOutputs& recomputed) {
  start_mlp(recomputed);
  start_sum();
  finish_block();
}

void LayerReplay::refill_mlp() {
  if (model_.post_norm) {
    mlp({});
    held_.drop(bytes_.shard);  // its output
    return;
  }
  held_.add(bytes_.shard + bytes_.statistics);
  fill_fc1();
}

int64_t LayerReplay::kept_by_post_norm() const { return model_.post_norm ? bytes_.shard + bytes_.statistics : 0; }

int64_t LayerReplay::kept_by_attention(const RecomputedOutputs& recomputed) const {
  const LayerBytes& b = bytes_;
  return (recomputed.norms ? 0 : b.shard) + b.statistics + 2 * b.query + 2 * b.key + b.lse +
         (model_.qk_layernorm ? b.query + b.key + b.head_statistics : 0) + kept_by_post_norm();
}

int64_t LayerReplay::kept_by_mlp(const RecomputedOutputs& recomputed) const {
  const LayerBytes& b = bytes_;
  return (recomputed.norms || recomputed.mlp ? 0 : b.shard) + b.statistics + (recomputed.mlp ? 0 : b.fc1) +
         (recomputed.activation || recomputed.mlp ? 0 : b.product) + kept_by_post_norm();
}

// An operand of a weight's gradient, which has been computed, or is deferred.
void LayerReplay::drop_operand(int64_t bytes) {
  if (deferred_) {
    operands_ += bytes;
  } else {
    held_.drop(bytes);
  }
}

// The gather of a column-parallel layer's input for its weight's gradient, and the end of that input.
void LayerReplay::column_parallel_weight() {
  if (!deferred_) {
    held_.add(bytes_.gathered);
    held_.drop(bytes_.gathered);
  }
  drop_operand(bytes_.shard);
}

// The gradient behind a norm at the end of a block; gathered, it is not the operand itself.
void LayerReplay::drop_branch_gradient() {
  if (!model_.post_norm) return;
  if (sequence_parallel_) return held_.drop(bytes_.shard);
  drop_operand(bytes_.shard);
}

// The gradient of a block's output is an operand, too, unless it is gathered or comes from a norm.
void LayerReplay::drop_output_gradient() {
  if (deferred_ && !sequence_parallel_ && !model_.post_norm) return drop_operand(bytes_.shard);
  held_.drop(bytes_.shard);
}

void LayerReplay::start_mlp_backward(const RecomputedOutputs& recomputed, bool has_product) {
  if (model_.post_norm) held_.add(bytes_.shard);  // gradient behind the norm
  if (recomputed.mlp) {
    held_.add(bytes_.shard);
    fill_fc1();
  }
  if (!has_product) held_.add(bytes_.product);
  held_.add(bytes_.gathered);
  drop_operand(bytes_.product);
  held_.add(bytes_.product);  // its gradient
  drop_operand(bytes_.gathered);
  drop_branch_gradient();
  held_.drop(bytes_.product);  // fc1's gradient is written where fc1 was
  if (recomputed.norms && !recomputed.mlp) held_.add(bytes_.shard);
  column_parallel_weight();
  held_.add(bytes_.hidden);
  drop_operand(bytes_.fc1);
}

void LayerReplay::finish_mlp_backward() {
  finish_sum();
  held_.add(bytes_.shard);  // gradient of the input
  held_.drop(bytes_.shard);
  held_.drop(bytes_.shard + bytes_.statistics);  // input, statistics
  if (model_.post_norm) held_.drop(bytes_.shard + bytes_.statistics);
  drop_output_gradient();
}

void LayerReplay::start_attention_backward(const RecomputedOutputs& recomputed) {
  if (model_.post_norm) held_.add(bytes_.shard);
  held_.add(bytes_.gathered);
  held_.add(bytes_.query);  // gradient of the context
  drop_operand(bytes_.gathered);
  drop_branch_gradient();
  held_.add(bytes_.packed());  // dq, dk, dv
  held_.drop(bytes_.query + bytes_.packed() + bytes_.lse);
  drop_operand(bytes_.query);
  if (model_.qk_layernorm) {
    held_.add(bytes_.query);
    held_.drop(bytes_.query);
    held_.add(bytes_.key);
    held_.drop(bytes_.key);
  }
  held_.add(bytes_.packed());
  held_.drop(bytes_.packed());
  if (recomputed.norms) held_.add(bytes_.shard);
  column_parallel_weight();
  held_.add(bytes_.hidden);
  drop_operand(bytes_.packed());
}

void LayerReplay::finish_attention_backward() {
  finish_sum();
  held_.add(bytes_.shard);
  held_.drop(bytes_.shard);
  held_.drop(bytes_.shard + bytes_.statistics);  // the layer's input
  if (model_.qk_layernorm) held_.drop(bytes_.query + bytes_.key + bytes_.head_statistics);
  if (model_.post_norm) held_.drop(bytes_.shard + bytes_.statistics);
  drop_output_gradient();
}

}  // namespace ms::layout
