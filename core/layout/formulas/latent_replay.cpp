// Latent attention's part of LayerReplay: train/model/multi_latent_attention.cpp.
#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

LatentBytes::LatentBytes(const TrainingStep& step) {
  const core::TransformerConfig& model = step.model;
  if (!model.multi_latent_attention) return;
  constexpr int64_t kFp32 = sizeof(float);
  const int64_t tp = step.layout.tensor_model_parallel_size, element = core::size_of(step.dtype);
  const int64_t tokens = step.tokens(), own = step.sequence_parallel ? tokens / tp : tokens;
  const int64_t moments = model.has_layer_norm() ? 2 : 1;
  has_norms = model.qk_layernorm;
  keeps_shared = step.recompute.has_latent_module();
  hidden_whole = tokens * model.hidden_size * element;
  query = own * model.q_lora_rank * element;
  query_whole = tokens * model.q_lora_rank * element;
  key = own * model.kv_lora_rank * element;
  key_whole = tokens * model.kv_lora_rank * element;
  shared = own * model.qk_pos_emb_head_dim * element;
  shared_whole = tokens * model.qk_pos_emb_head_dim * element;
  up = tokens * model.latent_key_value_rows() / tp * element;
  if (!has_norms) return;
  key_statistics = moments * own * kFp32;
  query_statistics = model.q_lora_rank > 0 ? key_statistics : 0;
}

void LayerReplay::latent_project(const LayerSlots& slots) {
  held_.add(latent_.query);
  if (latent_.has_norms && latent_.query > 0) held_.add(latent_.query + latent_.query_statistics);
  held_.add(latent_.key + latent_.shared);  // what linear_kv_down_proj gives
  held_.add(latent_.key + latent_.shared);  // its parts
  held_.drop(latent_.key + latent_.shared);
  if (sequence_parallel_) {
    held_.add(latent_.shared_whole);
    held_.drop(latent_.shared);
  }
  if (latent_.has_norms) held_.add(latent_.key + latent_.key_statistics);
  latent_up_project();
  if (!latent_.keeps_shared) held_.drop(latent_.shared_whole);
  if (slots.module_drops(SavedSlot::kInputNorm)) held_.drop(bytes_.shard);
}

void LayerReplay::latent_up_project() {
  const auto gathered = [&](int64_t whole) { return sequence_parallel_ ? whole : 0; };
  const int64_t of_queries = gathered(latent_.query > 0 ? latent_.query_whole : latent_.hidden_whole);
  held_.add(of_queries);
  held_.add(bytes_.query);
  held_.drop(of_queries);
  held_.add(gathered(latent_.key_whole));
  held_.add(latent_.up);
  held_.drop(gathered(latent_.key_whole));
  held_.add(bytes_.key + bytes_.value);
  held_.drop(latent_.up);
}

// Of an up projection: the gather of its input for the weight's gradient, and the gradient of it, summed. x, x_whole:
// bytes of the input; operand: of it, what ends here; dy: of the gradient of the output.
void LayerReplay::latent_linear_backward(int64_t x, int64_t x_whole, int64_t dy, int64_t operand) {
  const int64_t gathered = sequence_parallel_ && !deferred_ ? x_whole : 0;
  held_.add(gathered);
  held_.drop(gathered);
  drop_operand(operand);
  held_.add(x_whole);
  drop_operand(dy);
  if (!sequence_parallel_) return;
  held_.add(x);
  held_.drop(x_whole);
}

// dq, dk and dv are held; at the end the gradient of what the norm gives.
void LayerReplay::latent_backward(const LayerSlots& slots) {
  const bool had_norm_again = slots.module_drops(SavedSlot::kQ) && latent_.query == 0;
  if (latent_.keeps_shared) held_.drop(latent_.shared_whole);
  if (slots.module_drops(SavedSlot::kInputNorm) && !had_norm_again) held_.add(bytes_.shard);
  held_.add(latent_.up + latent_.shared_whole);
  held_.drop(bytes_.key + bytes_.value);
  latent_linear_backward(latent_.key, latent_.key_whole, latent_.up, latent_.key);
  if (sequence_parallel_) {
    held_.add(latent_.shared);
    held_.drop(latent_.shared_whole);
  }
  if (latent_.has_norms) {
    held_.add(latent_.key);
    held_.drop(2 * latent_.key + latent_.key_statistics);
  }
  held_.add(latent_.key + latent_.shared);  // gradient of what linear_kv_down_proj gives
  held_.drop(latent_.key + latent_.shared);
  held_.add(bytes_.shard);
  drop_operand(latent_.key + latent_.shared);
  if (latent_.query == 0) {
    latent_linear_backward(bytes_.shard, latent_.hidden_whole, bytes_.query, bytes_.shard);
    return held_.drop(bytes_.shard);  // added to that of the keys
  }
  latent_linear_backward(latent_.query, latent_.query_whole, bytes_.query, latent_.query);
  if (latent_.has_norms) {
    held_.add(latent_.query);
    held_.drop(2 * latent_.query + latent_.query_statistics);
  }
  drop_operand(bytes_.shard);
  held_.add(bytes_.shard);
  drop_operand(latent_.query);
  held_.drop(bytes_.shard);
}

}  // namespace ms::layout
