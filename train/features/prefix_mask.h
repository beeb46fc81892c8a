// Samples whose first positions all see each other, as a prefix language model has them (Raffel et al. 2020, section
// 3.2.1): the rest is causal.
// Source: sparse modes 5 and 6 of torch_npu's npu_fusion_attention and its argument `prefix`, in MindSpeed's
// --sparse-mode (attention_window.h).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct PrefixMaskConfig {
  int64_t prefix_length = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("prefix_length", &PrefixMaskConfig::prefix_length,
          "With --sparse-mode 5 or 6: so many positions at the front of each sample see each other, the others those "
          "before them. Tokens of the prefix but the first are seen where they are predicted: their loss does not "
          "count");
  }
};

Feature prefix_mask_feature();

}  // namespace ms::train
