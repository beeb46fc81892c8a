// Operators that make one pass over memory instead of several.
// Source: MindSpeed's --use-fused-rmsnorm, --use-fused-swiglu, --use-fused-rotary-pos-emb and --use-flash-attn.
#pragma once

#include <optional>

#include "train/features/feature.h"

namespace ms::train {

// Not given: on, unless --optimization-level 0 turns it off.
struct FusedOperatorsConfig {
  std::optional<bool> use_fused_rmsnorm;
  std::optional<bool> use_fused_swiglu;
  std::optional<bool> use_fused_rotary_pos_emb;
  std::optional<bool> use_flash_attn;

  bool fuses_rmsnorm() const { return use_fused_rmsnorm.value_or(true); }
  bool fuses_swiglu() const { return use_fused_swiglu.value_or(true); }
  bool fuses_rotary_pos_emb() const { return use_fused_rotary_pos_emb.value_or(true); }
  bool uses_flash_attn() const { return use_flash_attn.value_or(true); }

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = FusedOperatorsConfig;
    field("use_fused_rmsnorm", &C::use_fused_rmsnorm,
          "RMSNorm and its gradient in one pass each; off: squares, means, roots and products one after the other. "
          "Default: on");
    field("use_fused_swiglu", &C::use_fused_swiglu,
          "SwiGLU in one pass; off: SiLU of the gate, then the product. Default: on; "
          "--no-use-fused-swiglu turns it off");
    field("use_fused_rotary_pos_emb", &C::use_fused_rotary_pos_emb,
          "Rotary embedding in place; off: as three passes into new tensors. Default: on; "
          "--no-use-fused-rotary-pos-emb turns it off");
    field(
        "use_flash_attn", &C::use_flash_attn,
        "Attention in tiles, with memory that does not grow with the square of the sequence; off: all scores of a head "
        "at once, and their softmax. Default: on; --no-use-flash-attn turns it off");
  }
};

Feature fused_operators_feature();

}  // namespace ms::train
