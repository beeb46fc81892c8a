// Operators that make one pass over memory instead of several.
// Source: MindSpeed's --use-fused-rmsnorm, --use-fused-swiglu, --use-fused-rotary-pos-emb and --use-flash-attn.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct FusedOperatorsConfig {
  bool use_fused_rmsnorm = true;
  bool use_fused_swiglu = true;
  bool use_fused_rotary_pos_emb = true;
  bool use_flash_attn = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = FusedOperatorsConfig;
    field("use_fused_rmsnorm", &C::use_fused_rmsnorm,
          "RMSNorm and its gradient in one pass each; off: squares, means, roots and products one after the other");
    field("use_fused_swiglu", &C::use_fused_swiglu, "SwiGLU in one pass; off: SiLU of the gate, then the product");
    field("use_fused_rotary_pos_emb", &C::use_fused_rotary_pos_emb,
          "Rotary embedding in place; off: as three passes into new tensors");
    field(
        "use_flash_attn", &C::use_flash_attn,
        "Attention in tiles, with memory that does not grow with the square of the sequence; off: all scores of a head "
        "at once, and their softmax");
  }
};

Feature fused_operators_feature();

}  // namespace ms::train
