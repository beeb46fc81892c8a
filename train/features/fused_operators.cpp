#include "train/features/fused_operators.h"

#include "train/config.h"

namespace ms::train {

Feature fused_operators_feature() {
  return {
      .name = "fused-operators",
      .level = 1,
      .effect = "Computes norms, SwiGLU, rotary embedding and attention in one pass over memory instead of several",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<FusedOperatorsConfig>("training", config.training); },
      .is_active =
          [](const TrainerConfig& c) {
            return c.training.fuses_rmsnorm() || c.training.fuses_swiglu() || c.training.fuses_rotary_pos_emb() ||
                   c.training.uses_flash_attn();
          },
      .ineffective = {{[](const TrainerConfig& c) { return !c.training.fuses_rmsnorm() && c.model.has_layer_norm(); },
                       "--no-use-fused-rmsnorm has no effect with --normalization LayerNorm, which is always fused"},
                      {[](const TrainerConfig& c) { return !c.training.fuses_swiglu() && !c.model.swiglu; },
                       "--no-use-fused-swiglu has no effect without --swiglu"},
                      {[](const TrainerConfig& c) {
                         return !c.training.fuses_rotary_pos_emb() && !c.model.has_rotary_embedding();
                       },
                       "--no-use-fused-rotary-pos-emb has no effect without --position-embedding-type rope"}},
  };
}

}  // namespace ms::train
