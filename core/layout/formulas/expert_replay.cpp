#include "core/layout/formulas/expert_replay.h"

namespace ms::layout {

ExpertBytes::ExpertBytes(const TrainingStep& step) {
  constexpr int64_t kNumber = sizeof(float);  // fp32 and int32
  const core::TransformerConfig& model = step.model;
  const int64_t element = core::size_of(step.dtype), tokens = step.tokens(), rows = tokens * model.moe_router_topk;
  hidden = tokens * model.hidden_size * element;
  statistics = (model.has_layer_norm() ? 2 : 1) * tokens * kNumber;
  logits = tokens * model.num_experts * kNumber;
  slots = rows * kNumber;
  permuted = rows * model.hidden_size * element;
  fc1 = rows * model.expert_fc1_rows() * element;
  product = rows * model.moe_ffn_hidden_size * element;
  shared_fc1 = tokens * model.shared_expert_fc1_rows() * element;
  shared_product = tokens * model.moe_shared_expert_intermediate_size * element;
  shared_gate = model.moe_shared_expert_gate ? hidden + tokens * kNumber : 0;
}

void ExpertReplay::route() {
  held_.add(bytes_.hidden + bytes_.statistics);  // normed
  held_.add(bytes_.logits + 2 * bytes_.slots);   // experts, weights
  held_.add(bytes_.permuted + bytes_.slots);     // and their rows
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
  held_.add(bytes_.hidden);  // its sum for each token
  held_.drop(bytes_.permuted);
  if (bytes_.shared_fc1 > 0) {
    held_.add(bytes_.shared_fc1);
    held_.add(bytes_.shared_product);
    held_.add(bytes_.shared_gate > 0 ? bytes_.shared_gate : bytes_.hidden);
    if (bytes_.shared_gate > 0) held_.add(bytes_.hidden);
    held_.drop(bytes_.hidden);  // of two sums, one is left
    if (drops_products) held_.drop(bytes_.shared_product);
  }
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.drop(bytes_.hidden);
}

void ExpertReplay::refill() {
  fill_fc1();
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
  held_.add(b.shared_product);                  // gradient of the activation's result
  held_.drop(b.shared_product);
  held_.drop(b.shared_product);  // that of linear_fc1's is where its result was
  held_.add(b.hidden);
  held_.drop(b.hidden + b.shared_fc1 + b.shared_gate + (b.shared_gate > 0 ? b.hidden : 0));
}

void ExpertReplay::start_backward(const LayerSlots& slots) {
  const ExpertBytes& b = bytes_;
  const bool has_products = !slots.module_drops(SavedSlot::kProduct);
  if (slots.module_drops(SavedSlot::kPostAttentionNorm)) held_.add(b.hidden);
  held_.add(2 * b.slots);  // weights by row, and the permutation of the gradient
  held_.add(b.permuted);
  held_.drop(b.slots);
  if (!has_products) held_.add(b.product);
  held_.add(b.product + b.slots);  // gradient of the activation's result, and of the weights
  held_.drop(b.product + b.permuted);
  held_.drop(b.product);  // that of linear_fc1's is where its result was
  held_.add(b.permuted);  // gradient of what the experts read
  held_.drop(b.permuted + b.fc1);
  held_.add(b.hidden);  // its sum for each token
  held_.drop(b.permuted);
  held_.add(b.slots + b.logits);
  held_.add(b.hidden);  // the router's part
  held_.drop(b.hidden);
  held_.drop(2 * b.logits + 6 * b.slots);
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
