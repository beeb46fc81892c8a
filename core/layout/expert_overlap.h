// What a layer with experts computes while tokens, or their gradients, travel between ranks.
#pragma once

namespace ms::layout {

struct ExpertOverlap {
  bool shared_experts = false;  // between the post of an exchange and what needs its result
  // Those of experts, while the gradients of what they have read travel back.
  bool weight_gradients = false;
};

}  // namespace ms::layout
