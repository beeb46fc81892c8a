#include "train/memory/activations.h"

namespace ms::train {

core::Tensor* LayerActivations::tensor(layout::SavedSlot slot) {
  using enum layout::SavedSlot;
  switch (slot) {
    case kInput:
      return &input;
    case kInputNorm:
      return &attention.normed;
    case kQRaw:
      return &attention.q_raw;
    case kKRaw:
      return &attention.k_raw;
    case kQLatent:
      return &attention.q_latent;
    case kKvLatent:
      return &attention.kv_latent;
    case kSharedKey:
      return &attention.shared_key;
    case kGate:
      return &attention.gate;
    case kQ:
      return &attention.core.q;
    case kK:
      return &attention.core.k;
    case kV:
      return &attention.core.v;
    case kOut:
      return &attention.core.out;
    case kWholeOut:
      return &attention.core.whole_out;
    case kLse:
      return &attention.core.lse;
    case kAttentionBranch:
      return &attention.branch;
    case kPostAttention:
      return &post_attention;
    case kPostAttentionNorm:
      return &feed_forward.normed;
    case kFc1:
      return &feed_forward.fc1;
    case kProduct:
      return &feed_forward.product;
    case kMlpBranch:
      return &feed_forward.branch;
    case kRouting:
    case kPermuted:
    case kShared:
    case kInputNormStatistics:
    case kQNormStatistics:
    case kKNormStatistics:
    case kAttentionBranchStatistics:
    case kPostAttentionNormStatistics:
    case kMlpBranchStatistics:
      return nullptr;
  }
  return nullptr;
}

}  // namespace ms::train
