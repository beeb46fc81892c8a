#include "core/layout/formulas/layer_replay.h"

#include <algorithm>

#include "core/layout/adaptive_plan.h"
#include "core/layout/formulas/expert_replay.h"

namespace ms::layout {

LayerBytes::LayerBytes(const TrainingStep& step, ContextAlgorithm algorithm, bool experts) {
  constexpr int64_t kFp32 = sizeof(float);
  const core::TransformerConfig& model = step.model;
  const int64_t tp = step.layout.tensor_model_parallel_size;
  const int64_t element = core::size_of(step.dtype), tokens = step.tokens();
  hidden = tokens * model.hidden_size * element;
  shard = step.sequence_parallel ? hidden / tp : hidden;
  gathered = step.sequence_parallel ? hidden : 0;
  query = tokens * model.num_attention_heads / tp * model.key_head_dim() * element;
  const int64_t query_parts = step.grid().query_parts, groups = model.query_groups() * query_parts / tp;
  key = tokens * groups * model.key_head_dim() * element;
  value = tokens * groups * model.value_head_dim() * element;
  out = tokens * model.num_attention_heads / tp * model.value_head_dim() * element;
  gate = model.attention_output_gate ? out : 0;
  const ContextParts parts = step.context_parts_of(algorithm);
  const bool exchanges_heads = parts.ulysses > 1;
  if (exchanges_heads) copies = key_copies(groups, parts.ulysses);
  ring_ = int64_t{parts.ring} * parts.window;
  packed = tokens * model.qkv_rows() / tp * element;
  query_group = query_parts > 1 ? step.query_group_bytes() : 0;
  lse = tokens * model.num_attention_heads / tp * kFp32;
  product = tokens * model.ffn_hidden_size / tp * element;
  fc1 = tokens * model.fc1_rows() / tp * element;
  const int64_t moments = model.has_layer_norm() ? 2 : 1;
  statistics = moments * tokens / (step.sequence_parallel ? tp : 1) * kFp32;
  const int64_t normed_heads = model.qk_layernorm_all_heads ? 2 : model.num_attention_heads + groups * tp;
  head_statistics = model.qk_layernorm ? moments * tokens * normed_heads / tp * kFp32 : 0;

  using enum SavedSlot;
  const auto set = [&](SavedSlot slot, int64_t bytes) { of_slots_[slot_index(slot)] = bytes; };
  for (const SavedSlot slot : {kInput, kInputNorm, kPostAttention, kPostAttentionNorm}) set(slot, shard);
  for (const SavedSlot slot : {kInputNormStatistics, kPostAttentionNormStatistics}) set(slot, statistics);
  set(kQ, query);
  set(kK, key * copies);
  set(kV, value * copies);
  set(kGate, gate);
  set(kOut, out);
  set(kWholeOut, exchanges_heads ? out : 0);
  set(kLse, lse);
  set(kFc1, fc1);
  set(kProduct, product);
  if (experts) {
    const ExpertBytes of(step);
    set(kRouting, of.logits + of.routing);
    set(kPermuted, of.permuted);
    set(kFc1, of.fc1);
    set(kProduct, of.product + of.shared_product);
    set(kShared, of.shared_fc1 + of.shared_gate);
  }
  if (model.multi_latent_attention) {
    const LatentBytes of(step);
    set(kQLatent, of.query);
    set(kKvLatent, of.key);
    if (of.keeps_shared) set(kSharedKey, of.shared_whole);
    if (of.has_norms) {
      set(kQRaw, of.query);
      set(kKRaw, of.key);
      set(kQNormStatistics, of.query_statistics);
      set(kKNormStatistics, of.key_statistics);
    }
  } else if (model.qk_layernorm) {
    set(kQRaw, query);
    set(kKRaw, key);
    const int64_t query_heads = model.qk_layernorm_all_heads ? 1 : model.num_attention_heads;
    const int64_t of_queries = head_statistics * query_heads / normed_heads;
    set(kQNormStatistics, of_queries);
    set(kKNormStatistics, head_statistics - of_queries);
  }
  if (model.post_norm) {
    for (const SavedSlot slot : {kAttentionBranch, kMlpBranch}) set(slot, shard);
    for (const SavedSlot slot : {kAttentionBranchStatistics, kMlpBranchStatistics}) set(slot, statistics);
  }
}

namespace {

// Of gathered keys, how many have a gradient of queries at the front for themselves.
int64_t keys_of_front(const TrainingStep& step) {
  if (step.mask.grid && !step.mask.grid->is_causal()) return step.seq_length;
  return std::max(step.seq_length / 2, step.mask.prefix);
}

// Most blocks that one of the ranks attends by an adaptive plan, its own among them.
int most_blocks(const TrainingStep& step) {
  if (!step.mask.plan) return step.context_parts.ring;
  int64_t most = 0;
  for (int rank = 0; rank < step.mask.plan->ranks(); ++rank) most = std::max(most, step.mask.plan->received_by(rank));
  return static_cast<int>(1 + most);
}

}  // namespace

LayerReplay::LayerReplay(const TrainingStep& step, HeldBytes& held)
    : step_(step),
      model_(step.model),
      context_ranks_(step.layout.context_parallel_size),
      context_algorithm_(step.context_algorithm),
      context_parts_(step.context_parts_of(step.context_algorithm)),
      seq_length_(step.seq_length),
      front_keys_(keys_of_front(step)),
      blocks_(most_blocks(step)),
      gathers_keys_of_heads_(step.gathers_keys_of_heads),
      is_zigzag_(is_zigzag(step.context_algorithm)),
      dtype_(step.dtype),
      sequence_parallel_(step.sequence_parallel),
      posts_sums_(step.tensor_overlap.backward && step.layout.tensor_model_parallel_size > 1),
      parts_(step.product_parts()),
      own_first_(step.multiplies_own_first()),
      bytes_(step, step.context_algorithm),
      latent_(step),
      held_(held) {}

const LayerBytes& LayerReplay::bytes_of(int64_t layer, bool experts) {
  const ContextAlgorithm algorithm = step_.context_algorithm_of(layer);
  auto found = bytes_of_algorithms_.find(algorithm);
  if (found == bytes_of_algorithms_.end()) {
    const BytesOfKinds bytes{LayerBytes(step_, algorithm), LayerBytes(step_, algorithm, /*experts=*/true)};
    found = bytes_of_algorithms_.emplace(algorithm, bytes).first;
  }
  return experts ? found->second.with_experts : found->second.dense;
}

void LayerReplay::set_layer(int64_t layer) {
  context_algorithm_ = step_.context_algorithm_of(layer);
  context_parts_ = step_.context_parts_of(context_algorithm_);
  bytes_ = bytes_of(layer);
}

void LayerReplay::start_sum() {
  if (sequence_parallel_) held_.add(bytes_.shard);
}
void LayerReplay::start_backward_sum() {
  if (!posts_sums_) start_sum();
}
void LayerReplay::finish_sum() {
  if (sequence_parallel_) held_.drop(bytes_.hidden);
}

void LayerReplay::start_attention(const LayerSlots& slots) {
  held_.add(bytes_.shard + bytes_.statistics);  // normed
  if (model_.multi_latent_attention) {
    latent_project(slots);
  } else {
    held_.add(bytes_.gathered);
    held_.add(bytes_.packed);
    held_.drop(bytes_.gathered);
    if (slots.module_drops(SavedSlot::kInputNorm)) held_.drop(bytes_.shard);
    held_.add(bytes_.query_group);
    if (bytes_.query_group > 0) held_.drop(bytes_.packed);
    held_.add(bytes_.split() + bytes_.gate);
    held_.drop(bytes_.query_group > 0 ? bytes_.query_group : bytes_.packed);
    if (model_.qk_layernorm) held_.add(bytes_.query + bytes_.key + bytes_.head_statistics);
  }
  core_attention(slots.kv_cache());
  if (slots.module_drops(SavedSlot::kQ)) held_.drop(bytes_.split());
  held_.add(bytes_.gate);  // what linear_proj reads
  held_.add(bytes_.hidden);
  held_.drop(bytes_.gate);
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

void LayerReplay::start_mlp(const LayerSlots& slots) {
  held_.add(bytes_.shard + bytes_.statistics);
  fill_fc1();
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.drop(bytes_.shard);
  held_.add(bytes_.product);
  if (slots.module_drops(SavedSlot::kFc1)) held_.drop(bytes_.fc1);
  held_.add(bytes_.hidden);
  if (slots.module_drops(SavedSlot::kProduct)) held_.drop(bytes_.product);
}

void LayerReplay::attention(const LayerSlots& slots) {
  start_attention(slots);
  start_sum();
  finish_block();
}

void LayerReplay::mlp(const LayerSlots& slots) {
  start_mlp(slots);
  start_sum();
  finish_block();
}

void LayerReplay::refill_mlp(const LayerSlots& slots) {
  if (model_.post_norm) {
    mlp(slots);
    held_.drop(bytes_.shard);  // its output
    return;
  }
  held_.add(bytes_.shard + bytes_.statistics);
  fill_fc1();
}

void LayerReplay::drop(const LayerSlots& slots, const LayerBytes& bytes) {
  if (!slots.runs_again()) return;
  for (const SavedSlotProperties& of : kSavedSlots) {
    const bool is_there = !slots.module_drops(of.slot);
    if (is_there && slots[of.slot] == SlotDecision::kRecompute) held_.drop(bytes.of(of.slot, slots));
  }
}

// An operand of a weight's gradient, which has been computed, or is deferred.
void LayerReplay::drop_operand(int64_t bytes) {
  if (deferred_) {
    operands_ += bytes;
  } else {
    held_.drop(bytes);
  }
}

// The gather of a column-parallel layer's input for its weight's gradient, the end of that input, and the gradient of
// it. dy: bytes of the gradient of the output.
void LayerReplay::column_parallel_backward(int64_t dy) {
  const int64_t gathered = deferred_ ? 0 : bytes_.gathered;
  held_.add(gathered);
  if (posts_sums_) {
    held_.add(bytes_.hidden);
    start_sum();
  }
  held_.drop(gathered);
  drop_operand(bytes_.shard);
  if (!posts_sums_) held_.add(bytes_.hidden);
  drop_operand(dy);
}

// The gather of the gradient of a row-parallel layer's output, the end of its input x, which has `x` bytes, and the
// gradient of that.
void LayerReplay::row_parallel_backward(int64_t x) {
  const bool in_parts = parts_ > 1;  // a gradient that was gathered in parts is put together
  held_.add(bytes_.gathered);
  if (in_parts) held_.add(bytes_.gathered);
  if (own_first_) held_.add(x);
  if (in_parts) held_.drop(bytes_.gathered);
  drop_operand(x);
  if (!own_first_) held_.add(x);
  drop_operand(bytes_.gathered);
}

// What core attention gave, which linear_proj has read unless a gate is between.
void LayerReplay::drop_attention_result() { bytes_.gate > 0 ? held_.drop(bytes_.out) : drop_operand(bytes_.out); }

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

void LayerReplay::start_mlp_backward(const LayerSlots& slots) {
  const bool has_norm = !slots.module_drops(SavedSlot::kPostAttentionNorm),
             has_fc1 = !slots.module_drops(SavedSlot::kFc1);
  if (model_.post_norm) held_.add(bytes_.shard);  // gradient behind the norm
  if (!has_fc1) {
    if (!has_norm) held_.add(bytes_.shard);
    fill_fc1();
  }
  if (slots.module_drops(SavedSlot::kProduct)) held_.add(bytes_.product);
  row_parallel_backward(bytes_.product);
  drop_branch_gradient();
  held_.drop(bytes_.product);  // fc1's gradient is written where fc1 was
  if (!has_norm && has_fc1) held_.add(bytes_.shard);
  column_parallel_backward(bytes_.fc1);
}

void LayerReplay::finish_mlp_backward() {
  finish_sum();
  held_.add(bytes_.shard);  // gradient of the input
  held_.drop(bytes_.shard);
  held_.drop(bytes_.shard + bytes_.statistics);  // input, statistics
  if (model_.post_norm) held_.drop(bytes_.shard + bytes_.statistics);
  drop_output_gradient();
}

void LayerReplay::start_attention_backward(const LayerSlots& slots) {
  if (model_.post_norm) held_.add(bytes_.shard);
  if (bytes_.gate > 0) {
    held_.add(bytes_.gate);  // what linear_proj has read, once more
    row_parallel_backward(bytes_.gate);
  } else {
    const int64_t in_parts = parts_ > 1 ? bytes_.gathered : 0;
    held_.add(bytes_.gathered + in_parts);
    held_.add(bytes_.out);  // gradient of the context
    held_.drop(in_parts);
    drop_operand(bytes_.gathered);
  }
  drop_branch_gradient();
  if (slots.module_drops(SavedSlot::kQ)) {
    const bool needs_norm = latent_.query == 0 && slots.module_drops(SavedSlot::kInputNorm);
    if (needs_norm) held_.add(bytes_.shard);
    latent_up_project();
    refill_core_attention();
  }
  core_attention_backward(slots.kv_cache());
  if (model_.multi_latent_attention) return latent_backward(slots);
  if (model_.qk_layernorm) {
    held_.add(bytes_.query);
    held_.drop(bytes_.query);
    held_.add(bytes_.key);
    held_.drop(bytes_.key);
  }
  held_.add(bytes_.query_group > 0 ? bytes_.query_group : bytes_.packed);
  held_.drop(bytes_.split() + bytes_.gate);
  if (bytes_.query_group > 0) held_.add(bytes_.packed);
  held_.drop(bytes_.query_group);
  if (slots.module_drops(SavedSlot::kInputNorm)) held_.add(bytes_.shard);
  column_parallel_backward(bytes_.packed);
}

void LayerReplay::finish_attention_backward() {
  if (!model_.multi_latent_attention) finish_sum();
  held_.add(bytes_.shard);
  held_.drop(bytes_.shard);
  held_.drop(bytes_.shard + bytes_.statistics);  // the layer's input
  if (model_.qk_layernorm && !model_.multi_latent_attention)
    held_.drop(bytes_.query + bytes_.key + bytes_.head_statistics);
  if (model_.post_norm) held_.drop(bytes_.shard + bytes_.statistics);
  drop_output_gradient();
}

}  // namespace ms::layout
