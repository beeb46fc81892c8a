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
  all_hidden = exchange.ranks * hidden;
  all_slots = exchange.ranks * slots;
  routing = exchange.gathers ? 2 * slots + 3 * all_slots : 3 * slots;
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

void ExpertReplay::route() {
  held_.add(bytes_.hidden + bytes_.statistics);  // normed
  held_.add(bytes_.logits + 2 * bytes_.slots);   // experts, weights
  dispatch();
}

// Of TokenDispatcher::dispatch: permuted is held, and the rows of the choices.
void ExpertReplay::dispatch() {
  if (exchange_.gathers) {
    held_.add(2 * bytes_.all_slots + bytes_.all_hidden);
    held_.add(bytes_.permuted + bytes_.all_slots);
    return held_.drop(bytes_.all_hidden);
  }
  held_.add(bytes_.sent + bytes_.slots);
  to_experts(bytes_.sent, bytes_.permuted);
}

// Rows of this rank's tokens become those of the experts here.
void ExpertReplay::to_experts(int64_t sent, int64_t of_experts) {
  if (exchange_.ep > 1) {
    held_.add(sent);
    held_.drop(sent);
  }
  if (exchange_.etp > 1) {
    held_.add(of_experts);
    held_.drop(sent);
  }
  if (!exchange_.exists) return;
  held_.add(of_experts);  // sorted by expert
  held_.drop(of_experts);
}

void ExpertReplay::from_experts(int64_t sent, int64_t of_experts) {
  if (exchange_.exists) {
    held_.add(of_experts);
    held_.drop(of_experts);
  }
  if (exchange_.etp > 1) {
    held_.add(sent);
    held_.drop(of_experts);
  }
  if (exchange_.ep > 1) {
    held_.add(sent);
    held_.drop(sent);
  }
}

// What the experts give is held; afterwards its sum for each token.
void ExpertReplay::combine() {
  if (exchange_.gathers) {
    held_.add(bytes_.all_hidden);
    held_.drop(bytes_.permuted);
    held_.add(bytes_.hidden);
    return held_.drop(bytes_.all_hidden);
  }
  from_experts(bytes_.sent, bytes_.permuted);
  held_.add(bytes_.hidden);
  held_.drop(bytes_.sent);
}

// The gradient of what the experts give, and the weights of its rows, are held.
void ExpertReplay::dispatch_gradient() {
  const ExpertBytes& b = bytes_;
  if (exchange_.gathers) {
    held_.add(b.weights + b.all_hidden);
    held_.add(b.permuted + b.all_slots);
    return held_.drop(b.all_slots + b.all_hidden);
  }
  held_.add(2 * b.slots);  // weights, and the permutation of the gradient
  held_.add(b.sent);
  held_.drop(b.slots);
  to_experts(b.sent, b.permuted);
  to_experts(b.slots, b.weights);
}

// The gradients of what the experts read and of the weights become those of tokens and choices.
void ExpertReplay::combine_gradient() {
  const ExpertBytes& b = bytes_;
  if (exchange_.gathers) {
    held_.add(b.all_slots + b.all_hidden);
    held_.drop(b.permuted);
    held_.add(b.hidden);
    held_.drop(b.all_hidden);
    held_.add(b.slots);
    return held_.drop(b.all_slots + b.weights);
  }
  from_experts(b.sent, b.permuted);
  from_experts(b.slots, b.weights);
  held_.add(b.hidden);
  held_.drop(b.sent);
  held_.add(b.slots);
  held_.drop(b.slots);
}

// With sequence parallelism: what a linear layer of the shared experts reads is gathered, or what it gives is of the
// whole sequence, before this rank's part is left.
void ExpertReplay::hold_sequence() {
  held_.add(bytes_.gathered);
  held_.drop(bytes_.gathered);
}

void ExpertReplay::fill_fc1() {
  route();
  held_.add(bytes_.fc1);
}

void ExpertReplay::start(const LayerSlots& slots) {
  const bool drops_products = slots.module_drops(SavedSlot::kProduct);
  fill_fc1();
  held_.add(bytes_.product);
  held_.add(bytes_.permuted);  // what the experts give
  if (drops_products) held_.drop(bytes_.product);
  combine();
  if (bytes_.shared_fc1 > 0) {
    hold_sequence();
    held_.add(bytes_.shared_fc1);
    held_.add(bytes_.shared_product);
    hold_sequence();
    held_.add(bytes_.shared_gate > 0 ? bytes_.shared_gate : bytes_.hidden);
    if (bytes_.shared_gate > 0) held_.add(bytes_.hidden);
    held_.drop(bytes_.hidden);  // of two sums, one is left
    if (drops_products) held_.drop(bytes_.shared_product);
  }
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.drop(bytes_.hidden);
}

void ExpertReplay::refill() {
  fill_fc1();
  if (bytes_.shared_fc1 > 0) hold_sequence();
  held_.add(bytes_.shared_fc1);
  if (bytes_.shared_gate > 0) {
    held_.add(bytes_.shared_product + bytes_.shared_gate);
    held_.drop(bytes_.shared_product);
  }
}

void ExpertReplay::shared_backward(bool has_products) {
  const ExpertBytes& b = bytes_;
  if (b.shared_fc1 == 0) return;
  if (!has_products) held_.add(b.shared_product);
  held_.add(b.shared_gate > 0 ? b.hidden : 0);  // the gated gradient
  hold_sequence();                              // of the gradient
  held_.add(b.shared_product);                  // gradient of the activation's result
  held_.drop(b.shared_product);
  held_.drop(b.shared_product);  // that of linear_fc1's is where its result was
  hold_sequence();
  hold_sequence();
  held_.add(b.hidden);
  held_.drop(b.hidden + b.shared_fc1 + b.shared_gate + (b.shared_gate > 0 ? b.hidden : 0));
}

void ExpertReplay::start_backward(const LayerSlots& slots) {
  const ExpertBytes& b = bytes_;
  const bool has_products = !slots.module_drops(SavedSlot::kProduct);
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.add(b.hidden);
  dispatch_gradient();
  if (!has_products) held_.add(b.product);
  held_.add(b.product + b.weights);  // gradient of the activation's result, and of the weights
  held_.drop(b.product + b.permuted);
  held_.drop(b.product);  // that of linear_fc1's is where its result was
  held_.add(b.permuted);  // gradient of what the experts read
  held_.drop(b.permuted + b.fc1 + b.weights);
  combine_gradient();
  held_.add(b.logits);
  held_.add(b.hidden);  // the router's part
  held_.drop(b.hidden);
  held_.drop(2 * b.logits + b.slots + b.routing);
  shared_backward(has_products);
  held_.drop(b.hidden);  // normed
}

void ExpertReplay::finish_backward() {
  held_.add(bytes_.hidden);  // gradient of the input
  held_.drop(bytes_.hidden);
  held_.drop(bytes_.hidden + bytes_.statistics);  // input, statistics
  held_.drop(bytes_.hidden);                      // gradient of the output
}

}  // namespace ms::layout
