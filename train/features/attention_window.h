// Which keys before it a query sees, in the words of Megatron and MindSpeed. There is one window, that of
// --sliding-window in the layers of --window-attn-skip-freq (core/transformer_config.h): these flags say the same.
// Source: Megatron's --window-size (megatron/core/transformer/utils.py, get_sliding_window_causal_mask); MindSpeed's
// --sparse-mode, --pre-tockens and --next-tockens (mindspeed/core/transformer/dot_product_attention.py), which
// torch_npu's npu_fusion_attention takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct AttentionWindowConfig {
  std::string window_size;
  int64_t sparse_mode = 0;
  std::optional<int64_t> pre_tockens, next_tockens;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AttentionWindowConfig;
    field("window_size", &C::window_size,
          "Megatron's sliding window, L,R: a query sees L keys before it and itself, --sliding-window L + 1; R is 0, L "
          "-1 for all");
    field(
        "sparse_mode", &C::sparse_mode,
        "MindSpeed's masks: 0, causal within --pre-tockens; 1, 2 and 3, causal; 4, the band of --pre-tockens. Each is "
        "a few numbers, no seq x seq array");
    field("pre_tockens", &C::pre_tockens,
          "With --sparse-mode 0 or 4: keys before it that a query sees, --sliding-window less 1. Default: all");
    field("next_tockens", &C::next_tockens,
          "Keys behind it that a query sees: with --sparse-mode 4 none, else the causal mask hides them");
  }
};

Feature attention_window_feature();

}  // namespace ms::train
