#include "core/layout/formulas/expert_replay.h"

namespace ms::layout {

ExpertBytes::ExpertBytes(const TrainingStep& step) {
  constexpr int64_t kNumber = sizeof(float);  // fp32 and int32
  const core::TransformerConfig& model = step.model;
  const TokenExchange exchange(step);
  const int64_t element = core::size_of(step.dtype), tokens = exchange.tokens, rows = exchange.rows;
  const int64_t tp = step.layout.tensor_model_parallel_size;
  hidden = tokens * model.hidden_size * element;
  statistics = (model.has_layer_norm() ? 2 : 1) * tokens * kNumber;
  logits = tokens * model.num_experts * kNumber;
  slots = rows * kNumber;
  const int64_t parts = tp * step.layout.context_parallel_size;
  whole_logits = parts > 1 && step.gathers_logits ? parts * logits : 0;
  tp_logits = tp > 1 && step.layout.context_parallel_size > 1 ? whole_logits / step.layout.context_parallel_size : 0;
  whole_slots = parts > 1 && step.gathers_choices ? parts * slots : 0;
  destinations = step.gathers_choices || step.has_own_lengths || step.expert_placement_freq > 0 ? slots : 0;
  all_hidden = exchange.ranks * hidden;
  all_slots = exchange.ranks * slots;
  routing = destinations + 2 * slots + (exchange.gathers ? 3 * all_slots : slots);
  if (exchange.groups > 1) routing += (2 * exchange.groups - 1) * slots;  // destinations and rows of each group
  sent = rows * model.hidden_size * element;
  permuted = exchange.expert_rows * model.hidden_size * element;
  fc1 = exchange.expert_rows * model.expert_fc1_rows() / exchange.etp * element;
  product = exchange.expert_rows * model.moe_ffn_hidden_size / exchange.etp * element;
  weights = exchange.expert_rows * kNumber;
  shared_fc1 = step.tokens() * model.shared_expert_fc1_rows() / tp * element;
  shared_product = step.tokens() * model.moe_shared_expert_intermediate_size / tp * element;
  gathered = step.sequence_parallel ? tp * hidden : 0;
  shared_gate = model.moe_shared_expert_gate ? hidden + tokens * kNumber : 0;
}

void ExpertReplay::start_route() {
  const ExpertBytes& b = bytes_;
  held_.add(b.hidden + b.statistics);  // normed
  held_.add(b.logits);
  held_.add(b.whole_logits + b.tp_logits);
  held_.drop(b.tp_logits);
  held_.add(2 * b.slots);  // experts, weights
  held_.drop(b.whole_logits);
  if (b.destinations > 0) {
    held_.add(3 * b.whole_slots);
    held_.add(b.destinations);
    held_.drop(3 * b.whole_slots);
  }
  // Of TokenDispatcher::start_dispatch.
  if (exchange_.gathers) return held_.add(2 * b.all_slots + b.all_hidden);
  if (exchange_.groups > 1) held_.add(exchange_.groups * b.slots);  // destinations
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    held_.add(b.slots + of_group(b.sent));
    post_to_experts(of_group(b.sent), of_group(b.permuted));
  }
}

// Of a group of experts, or of all: permuted is held, and the rows of the choices.
void ExpertReplay::finish_dispatch() {
  if (!exchange_.gathers) return take_at_experts(of_group(bytes_.sent), of_group(bytes_.permuted));
  held_.add(bytes_.all_slots + bytes_.permuted);
  held_.drop(bytes_.all_hidden);
  within_block();
}

// Of a hierarchical exchange, where a rank sends as many rows as it receives.
void ExpertReplay::within_block() {
  if (!exchange_.is_hierarchical) return;
  post_to_experts(bytes_.permuted, bytes_.permuted);
  take_at_experts(bytes_.permuted, bytes_.permuted);
}

// Rows of this rank's tokens become those of the experts here.
void ExpertReplay::post_to_experts(int64_t sent, int64_t of_experts) {
  if (exchange_.exists) held_.add(exchange_.ep > 1 ? sent : of_experts);
}

void ExpertReplay::take_at_experts(int64_t sent, int64_t of_experts) {
  if (!exchange_.exists) return;
  held_.drop(sent);
  if (exchange_.ep > 1 && exchange_.etp > 1) {
    held_.add(of_experts);
    held_.drop(sent);
  }
  held_.add(of_experts);  // sorted by expert
  held_.drop(of_experts);
}

void ExpertReplay::post_from_experts(int64_t sent, int64_t of_experts) {
  if (!exchange_.exists) return;
  held_.add(of_experts);
  held_.drop(of_experts);
  held_.add(sent);
}

void ExpertReplay::take_from_experts(int64_t sent, int64_t of_experts) {
  if (!exchange_.exists) return;
  held_.drop(of_experts);
  if (exchange_.ep > 1 && exchange_.etp > 1) {
    held_.add(sent);
    held_.drop(sent);
  }
}

// What the experts give is held; afterwards its sum for each token.
void ExpertReplay::start_combine() {
  if (!exchange_.gathers) return post_from_experts(of_group(bytes_.sent), of_group(bytes_.permuted));
  if (exchange_.is_hierarchical) {
    post_from_experts(bytes_.permuted, bytes_.permuted);
    take_from_experts(bytes_.permuted, bytes_.permuted);
  }
  held_.add(bytes_.all_hidden);
  held_.drop(bytes_.permuted);
  held_.add(bytes_.hidden);
}

void ExpertReplay::finish_combine() {
  if (exchange_.gathers) return held_.drop(bytes_.all_hidden);
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    take_from_experts(of_group(bytes_.sent), of_group(bytes_.permuted));
    held_.add(bytes_.hidden);
    held_.drop(of_group(bytes_.sent));
    if (group > 0) held_.drop(bytes_.hidden);  // added to the first one's
  }
}

void ExpertReplay::start_dispatch_gradient() {
  const ExpertBytes& b = bytes_;
  if (exchange_.gathers) return held_.add(b.all_hidden);
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    held_.add(of_group(b.slots + b.sent));
    post_to_experts(of_group(b.sent), of_group(b.permuted));
    post_to_experts(of_group(b.slots), of_group(b.weights));
  }
}

// The gradient of what the experts give, and the weights of its rows, are held.
void ExpertReplay::finish_dispatch_gradient() {
  const ExpertBytes& b = bytes_;
  if (exchange_.gathers) {
    held_.add(b.weights + b.permuted);
    held_.drop(b.all_hidden);
    if (!exchange_.is_hierarchical) return;
    post_to_experts(b.permuted, b.permuted);
    post_to_experts(b.weights, b.weights);
  }
  take_at_experts(of_group(b.sent), of_group(b.permuted));
  take_at_experts(of_group(b.slots), of_group(b.weights));
}

// The gradients of what the experts read and of the weights become those of tokens and choices.
void ExpertReplay::start_combine_gradient() {
  const ExpertBytes& b = bytes_;
  if (!exchange_.gathers) {
    post_from_experts(of_group(b.sent), of_group(b.permuted));
    return post_from_experts(of_group(b.slots), of_group(b.weights));
  }
  if (exchange_.is_hierarchical) {
    post_from_experts(b.permuted, b.permuted);
    post_from_experts(b.weights, b.weights);
    take_from_experts(b.permuted, b.permuted);
    take_from_experts(b.weights, b.weights);
  }
  held_.add(b.all_slots);
  held_.drop(b.weights);
  held_.add(b.all_hidden);
  held_.drop(b.permuted);
  held_.add(b.hidden + b.slots);
}

void ExpertReplay::finish_combine_gradient() {
  const ExpertBytes& b = bytes_;
  if (exchange_.gathers) return held_.drop(b.all_hidden + b.all_slots);
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    take_from_experts(of_group(b.sent), of_group(b.permuted));
    take_from_experts(of_group(b.slots), of_group(b.weights));
    held_.add(b.hidden);
    held_.drop(of_group(b.sent));
    held_.add(b.slots);
    held_.drop(of_group(b.slots));
    if (group > 0) held_.drop(b.hidden + b.slots);  // added to the first one's
  }
}

// With sequence parallelism: what a linear layer of the shared experts reads is gathered, or what it gives is of the
// whole sequence, before this rank's part is left.
void ExpertReplay::hold_sequence() {
  held_.add(bytes_.gathered);
  held_.drop(bytes_.gathered);
}

void ExpertReplay::start_shared() {
  hold_sequence();
  held_.add(bytes_.shared_fc1);
  held_.add(bytes_.shared_product);
}

// Afterwards what they give is held.
void ExpertReplay::finish_shared() {
  hold_sequence();
  held_.add(bytes_.shared_gate);
  held_.add(bytes_.hidden);
}

void ExpertReplay::dispatch() {
  start_route();
  if (overlaps_shared()) start_shared();
}

void ExpertReplay::run_experts(const LayerSlots& slots) {
  using enum SavedSlot;
  const ExpertBytes& b = bytes_;
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    finish_dispatch();
    held_.add(of_group(b.fc1));
    if (slots.module_drops(kPermuted)) held_.drop(of_group(b.permuted));
    held_.add(of_group(b.product));
    if (slots.module_drops(kFc1)) held_.drop(of_group(b.fc1));
    held_.add(of_group(b.permuted));  // what the experts give
    if (slots.module_drops(kProduct)) held_.drop(of_group(b.product));
    if (exchange_.groups > 1) start_combine();
  }
}

void ExpertReplay::combine() {
  if (exchange_.groups == 1) start_combine();
  if (overlaps_shared()) finish_shared();
}

void ExpertReplay::finish(const LayerSlots& slots) {
  using enum SavedSlot;
  const ExpertBytes& b = bytes_;
  finish_combine();
  if (b.shared_fc1 > 0) {
    if (!overlaps_shared()) {
      start_shared();
      finish_shared();
    }
    held_.drop(b.hidden);
    if (slots.module_drops(kShared)) held_.drop(b.shared_fc1 + b.shared_gate);
    if (slots.module_drops(kProduct) || slots.module_drops(kShared)) held_.drop(b.shared_product);
  }
  if (slots.module_drops(kRouting)) held_.drop(b.logits + b.routing);
  if (post_norm_) held_.add(b.hidden + b.statistics);  // its input is kept
  if (slots.module_drops(kPostAttentionNorm)) held_.drop(b.hidden);
}

void ExpertReplay::start(const LayerSlots& slots) {
  dispatch();
  run_experts(slots);
  combine();
  finish(slots);
}

void ExpertReplay::refill_shared() {
  if (bytes_.shared_fc1 == 0) return;
  hold_sequence();
  held_.add(bytes_.shared_fc1);
  if (bytes_.shared_gate == 0) return;
  held_.add(bytes_.shared_product);
  hold_sequence();
  held_.add(bytes_.shared_gate);
  held_.drop(bytes_.shared_product);
}

void ExpertReplay::refill(const LayerSlots& slots) {
  if (!post_norm_) return refill_experts();
  start(slots);
  held_.drop(bytes_.hidden);  // its output
}

void ExpertReplay::refill_experts() {
  start_route();
  if (overlaps_shared()) refill_shared();
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    finish_dispatch();
    held_.add(of_group(bytes_.fc1));
  }
  if (!overlaps_shared()) refill_shared();
}

// Afterwards the gradient of what they read is held.
void ExpertReplay::shared_backward(const LayerSlots& slots) {
  const ExpertBytes& b = bytes_;
  if (slots.module_drops(SavedSlot::kShared)) refill_shared();
  if (slots.module_drops(SavedSlot::kShared) || slots.module_drops(SavedSlot::kProduct)) held_.add(b.shared_product);
  held_.add(b.shared_gate > 0 ? b.hidden : 0);  // the gated gradient
  held_.drop(b.shared_gate);
  held_.add(b.gathered);        // of the gradient
  held_.add(b.shared_product);  // gradient of the activation's result
  drop_operand(b.shared_product);
  drop_operand(b.gathered);
  held_.drop(b.shared_product);  // that of linear_fc1's is where its result was
  const int64_t gated = b.shared_gate > 0 ? b.hidden : 0;
  b.gathered > 0 ? held_.drop(gated) : drop_operand(gated);
  if (!deferred_) hold_sequence();
  hold_sequence();
  held_.add(b.hidden);
  drop_operand(b.shared_fc1);
  held_.add(b.shared_gate > 0 ? b.hidden : 0);  // of what the gate reads
  held_.drop(b.shared_gate > 0 ? b.hidden : 0);
}

// What the experts have read travels once more.
void ExpertReplay::start_again() {
  if (exchange_.gathers) return held_.add(bytes_.all_hidden);
  held_.add(bytes_.sent);
  post_to_experts(bytes_.sent, bytes_.permuted);
}

void ExpertReplay::finish_again() {
  if (!exchange_.gathers) return take_at_experts(bytes_.sent, bytes_.permuted);
  held_.add(bytes_.permuted);
  held_.drop(bytes_.all_hidden);
  within_block();
}

// An operand of a weight's gradient, which has been computed, or is deferred.
void ExpertReplay::drop_operand(int64_t bytes) {
  if (deferred_) {
    operands_ += bytes;
  } else {
    held_.drop(bytes);
  }
}

void ExpertReplay::drop_fc1_operands(const LayerSlots& slots) {
  using enum SavedSlot;
  if (slots.module_drops(kPermuted) && !slots.module_drops(kFc1)) finish_again();
  drop_operand(of_group(bytes_.permuted + bytes_.fc1));
}

void ExpertReplay::combine_backward(const LayerSlots& slots) {
  if (post_norm_) held_.add(bytes_.hidden);  // gradient behind the norm
  start_combine_backward(slots);
}

void ExpertReplay::start_combine_backward(const LayerSlots& slots) {
  const ExpertBytes& b = bytes_;
  if (slots.module_drops(SavedSlot::kRouting)) {  // all runs again; the norm's statistics are there twice
    refill_experts();
    held_.drop(b.statistics);
    return start_combine_backward(slots.refilled(/*post_norm=*/false));
  }
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.add(b.hidden);
  start_dispatch_gradient();
  if (slots.module_drops(SavedSlot::kPermuted)) start_again();
  if (overlaps_shared()) shared_backward(slots);
}

// The gradients of the rows of the result, and their weights, become those of the rows that the experts have read.
void ExpertReplay::run_experts_backward(const LayerSlots& slots) {
  using enum SavedSlot;
  const ExpertBytes& b = bytes_;
  if (slots.module_drops(kRouting)) return run_experts_backward(slots.refilled(/*post_norm=*/false));
  for (int64_t group = 0; group < exchange_.groups; ++group) {
    finish_dispatch_gradient();
    if (slots.module_drops(kFc1)) {
      if (slots.module_drops(kPermuted)) finish_again();
      held_.add(of_group(b.fc1));
    }
    if (slots.module_drops(kProduct)) held_.add(of_group(b.product));
    held_.add(of_group(b.product + b.weights));  // gradient of the activation's result, and of the weights
    if (!overlap_.weight_gradients) drop_fc2_operands();
    held_.drop(of_group(b.product));  // that of linear_fc1's is where its result was
    held_.add(of_group(b.permuted));  // gradient of what the experts read
    if (!overlap_.weight_gradients) drop_fc1_operands(slots);
    held_.drop(of_group(b.weights));
    if (exchange_.groups > 1) send_gradient_back(slots);
  }
}

// Of what the experts have read; beside it those of weights, if they wait.
void ExpertReplay::send_gradient_back(const LayerSlots& slots) {
  start_combine_gradient();
  if (!overlap_.weight_gradients) return;
  drop_fc2_operands();
  drop_fc1_operands(slots);
}

void ExpertReplay::dispatch_backward(const LayerSlots& slots) {
  if (slots.module_drops(SavedSlot::kRouting)) return dispatch_backward(slots.refilled(/*post_norm=*/false));
  if (exchange_.groups == 1) send_gradient_back(slots);
}

void ExpertReplay::finish_backward(const LayerSlots& slots) {
  const ExpertBytes& b = bytes_;
  if (slots.module_drops(SavedSlot::kRouting)) return finish_backward(slots.refilled(/*post_norm=*/false));
  finish_combine_gradient();
  held_.add(b.logits);
  held_.add(b.hidden);  // the router's part
  held_.drop(b.hidden);
  held_.drop(2 * b.logits + b.slots + b.routing);
  if (b.shared_fc1 > 0) {
    if (!overlaps_shared()) shared_backward(slots);
    held_.drop(b.hidden);
  }
  // Shared experts read what the norm has given, and the gradient of the output, or of what the norm behind them reads.
  const bool is_operand = deferred_ && b.shared_fc1 > 0;
  const bool reads_gradient = is_operand && b.gathered == 0 && b.shared_gate == 0;
  if (post_norm_) reads_gradient ? drop_operand(b.hidden) : held_.drop(b.hidden);
  if (is_operand) {
    drop_operand(b.hidden);
  } else {
    held_.drop(b.hidden);
  }
  held_.add(b.hidden);  // gradient of the input
  held_.drop(b.hidden);
  held_.drop(b.hidden + b.statistics);                  // input, statistics
  if (post_norm_) held_.drop(b.hidden + b.statistics);  // its input
  if (reads_gradient && !post_norm_) {
    drop_operand(b.hidden);
  } else {
    held_.drop(b.hidden);
  }
}

void ExpertReplay::backward(const LayerSlots& slots) {
  combine_backward(slots);
  run_experts_backward(slots);
  dispatch_backward(slots);
  finish_backward(slots);
}

}  // namespace ms::layout
