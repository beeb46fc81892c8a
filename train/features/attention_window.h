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
          "Sliding window as L,R: a query sees itself and the L keys before it (--sliding-window L + 1). L -1: no "
          "limit. R must be 0, or -1, which is the same since attention is causal");
    field(
        "sparse_mode", &C::sparse_mode,
        "MindSpeed's masks: 0, causal within --pre-tockens; 1, 2 and 3, causal; 4, the band of --pre-tockens; 5 and 6, "
        "causal with the prefix of --prefix-length. Each is a few numbers, no seq x seq array");
    field("pre_tockens", &C::pre_tockens,
          "With --sparse-mode 0 or 4: keys before the query that it sees (--sliding-window N is --pre-tockens N - 1). "
          "Default: all");
    field("next_tockens", &C::next_tockens,
          "Keys after the query. Only 0 is accepted with --sparse-mode 4; other modes ignore it, since attention is "
          "causal");
  }
};

Feature attention_window_feature();

}  // namespace ms::train
