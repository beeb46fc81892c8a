#include "core/layout/formulas/loss_replay.h"

#include <algorithm>

namespace ms::layout {
namespace {

constexpr int64_t kFp32 = sizeof(float);

}  // namespace

int64_t LossReplay::rows_of_logits() const {
  const int64_t chunk = step_.loss_chunk_size * step_.micro_batch_size;
  return chunk > 0 ? std::min(chunk, step_.tokens()) : step_.tokens();
}

int64_t LossReplay::vocabulary() const { return model_.padded_vocab_size(static_cast<int>(tp())) / tp(); }

void LossReplay::norm_forward() { held_.add(bytes().shard + bytes().statistics); }

void LossReplay::output_forward(bool at_once, bool normed_stays) {
  held_.add(bytes().gathered);
  if (at_once && normed_stays && !step_.sequence_parallel) held_.add(bytes().shard);  // where the gradient will be
  const int64_t logits = rows_of_logits() * vocabulary() * kFp32;
  held_.add(logits);
  if (!at_once) return held_.drop(bytes().gathered);
  rows_gradient(logits_gradient(logits), /*deferred=*/false);
  held_.drop(rows_bytes());
  // Of gathered and normed the gradient stays in one.
  if (step_.sequence_parallel && !normed_stays) held_.drop(bytes().shard);
}

// The logits become their gradient, whose bytes it returns.
int64_t LossReplay::logits_gradient(int64_t logits) {
  if (model_.output_logit_softcapping > 0) {
    held_.add(logits);
    held_.drop(logits);
  }
  if (step_.dtype == core::DType::kFp32) return logits;
  const int64_t gradient = logits / kFp32 * core::size_of(step_.dtype);
  held_.add(gradient);
  held_.drop(logits);
  return gradient;
}

// Of the logits' gradient that of the rows. deferred: the former stays for the output layer's. beside: bytes that are
// held at the end, too.
void LossReplay::rows_gradient(int64_t gradient, bool deferred, int64_t beside) {
  held_.add(rows_bytes());
  held_.add(beside);
  held_.drop(beside);
  if (!deferred) held_.drop(gradient);
}

void LossReplay::output_backward(bool at_once, bool deferred) {
  if (!at_once) {
    const int64_t gathered = deferred ? 0 : bytes().gathered, logits = step_.tokens() * vocabulary() * kFp32;
    const int64_t gradient = logits_gradient(logits);
    if (step_.tensor_overlap.backward && tp() > 1) {
      rows_gradient(gradient, deferred, gathered + (step_.sequence_parallel ? bytes().shard : 0));
      if (!deferred) held_.drop(bytes().shard);  // normed
    } else {
      held_.add(bytes().gathered);
      held_.drop(bytes().gathered);
      if (!deferred) held_.drop(bytes().shard);  // normed
      rows_gradient(gradient, deferred);
    }
  }
  layer_.leave_row_parallel();
}

void LossReplay::norm_backward() {
  held_.add(bytes().shard);
  held_.drop(bytes().shard);
  held_.drop(bytes().shard + bytes().statistics);  // input, statistics
}

void LossReplay::forward(const LayerSlots& slots) {
  norm_forward();
  for (int64_t layer = 0; layer < model_.mtp_num_layers; ++layer) {
    mtp_forward(slots);
    norm_forward();
    output_forward(mtp_at_once(), layer + 1 < model_.mtp_num_layers);
  }
  output_forward(in_chunks(), has_mtp());
}

void LossReplay::backward(const LayerSlots& slots, bool defers_output, bool defers_layers) {
  if (has_mtp()) {
    layer_.begin_backward(/*deferred=*/false);
    experts_.begin_backward(/*deferred=*/false);
  }
  for (int64_t layer = model_.mtp_num_layers; layer-- > 0;) {
    output_backward(mtp_at_once(), /*deferred=*/false);
    if (layer + 1 < model_.mtp_num_layers) held_.drop(bytes().shard);  // added: the gradient from the layer behind
    norm_backward();
    mtp_backward(slots);
    const bool before_was_at_once = layer > 0 ? mtp_at_once() : in_chunks();
    if (before_was_at_once) held_.drop(bytes().shard);  // what its norm gave
  }
  if (has_mtp()) {
    layer_.begin_backward(defers_layers);
    experts_.begin_backward(defers_layers);
  }
  output_backward(in_chunks(), defers_output);
  if (has_mtp()) held_.drop(bytes().shard);
  norm_backward();
}

// What the norm before gave is held; at the end the layer's result is, too.
void LossReplay::mtp_forward(const LayerSlots& slots) {
  held_.add(bytes().hidden);  // the embedding
  layer_.leave_row_parallel();
  held_.add(bytes().shard + bytes().statistics);
  held_.add(bytes().shard + bytes().statistics);
  held_.add(2 * bytes().shard);  // both beside each other
  held_.drop(2 * bytes().shard);
  projection_forward();
  layer_.set_layer(model_.num_layers);
  layer_.attention(slots);
  has_experts() ? experts_.start(slots) : layer_.mlp(slots);
  layer_.drop(slots, layer_.bytes_of(model_.num_layers, has_experts()));
}

void LossReplay::projection_forward() {
  held_.add(2 * bytes().gathered);
  held_.add(bytes().hidden / tp());
  held_.drop(2 * bytes().gathered);
  if (tp() == 1) return;
  held_.add(bytes().hidden);  // of all ranks
  held_.drop(bytes().hidden / tp());
  held_.add(bytes().shard);
  held_.drop(bytes().hidden);
}

// The gradient of the layer's result is held; at the end that of what the norm before gave.
void LossReplay::mtp_backward(const LayerSlots& slots) {
  layer_.set_layer(model_.num_layers);
  LayerSlots own = slots;
  if (slots.runs_again()) {
    layer_.attention(slots);
    has_experts() ? experts_.refill(slots) : layer_.refill_mlp(slots);
    own = slots.refilled(model_.post_norm);
  }
  if (has_experts()) {
    experts_.backward(own);
  } else {
    layer_.start_mlp_backward(own);
    layer_.start_backward_sum();
    layer_.finish_mlp_backward();
  }
  layer_.start_attention_backward(slots);
  if (!model_.multi_latent_attention) layer_.start_backward_sum();
  layer_.finish_attention_backward();
  projection_backward();
  held_.add(2 * bytes().shard);  // the gradients of both norms' results
  held_.drop(2 * bytes().shard);
  held_.add(bytes().shard);
  held_.drop(2 * bytes().shard + bytes().statistics);  // the embedding with it
  held_.add(bytes().gathered);
  held_.drop(bytes().gathered + bytes().shard);
  held_.add(bytes().shard);
  held_.drop(bytes().shard + bytes().statistics);
}

void LossReplay::projection_backward() {
  if (tp() > 1) {
    held_.add(bytes().gathered);
    held_.add(bytes().hidden / tp());
    held_.drop(bytes().gathered + bytes().shard);
  }
  const bool posts_sum = step_.tensor_overlap.backward && tp() > 1;
  const int64_t sum = step_.sequence_parallel ? 2 * bytes().shard : 0;
  held_.add(2 * bytes().gathered);
  if (posts_sum) held_.add(2 * bytes().hidden + sum);
  held_.drop(2 * bytes().gathered + 2 * bytes().shard);  // what it read, too
  if (!posts_sum) held_.add(2 * bytes().hidden);
  held_.drop(bytes().hidden / tp());
  if (!posts_sum) held_.add(sum);
  if (step_.sequence_parallel) held_.drop(2 * bytes().hidden);
}

}  // namespace ms::layout
