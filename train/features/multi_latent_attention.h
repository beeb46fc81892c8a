// Latent attention: how it is trained. What it is (its ranks and head sizes) is in core/transformer_config.h. Source:
// megatron/core/transformer/multi_latent_attention.py; MindSpeed-LLM's mla_feature.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct MultiLatentAttentionConfig {
  bool recompute_mla_up_proj = false;
  // No flags: given of a model with latent attention, which has no use for them.
  bool drops_query_groups = false, drops_kv_channels = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field(
        "recompute_mla_up_proj", &MultiLatentAttentionConfig::recompute_mla_up_proj,
        "With --multi-latent-attention: drop queries, keys and values as soon as attention has read them, and compute "
        "them again from their low-rank vectors in backward, two products of a layer's (as --recompute-modules "
        "mla_up_proj)");
  }
};

Feature multi_latent_attention_feature();

}  // namespace ms::train
