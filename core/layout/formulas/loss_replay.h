// What the stage of the loss allocates and frees behind its layers, in the order of train/model/loss.cpp and
// train/model/multi_token_prediction.cpp, as LayerReplay has it of a layer (layer_replay.h).
#pragma once

#include <cstdint>

#include "core/layout/formulas/expert_replay.h"
#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

class LossReplay {
 public:
  LossReplay(const TrainingStep& step, LayerReplay& layer, ExpertReplay& experts, HeldBytes& held)
      : step_(step), model_(step.model), layer_(layer), experts_(experts), held_(held) {}

  // What the last layer gives is held. slots: of the layers of multi-token prediction.
  void forward(const LayerSlots& slots);
  // At the end the gradient of that is. defers_output: the gradient of the output layer's weight is computed later;
  // defers_layers: those of the chunk's layers, but not these of multi-token prediction.
  void backward(const LayerSlots& slots, bool defers_output, bool defers_layers);

 private:
  const LayerBytes& bytes() const { return layer_.bytes(); }
  bool has_mtp() const { return model_.mtp_num_layers > 0; }
  bool has_experts() const { return model_.layer_has_experts(model_.num_layers); }  // of multi-token prediction
  bool in_chunks() const { return step_.loss_chunk_size > 0; }
  bool mtp_at_once() const { return in_chunks() || step_.mtp_logits_are_brief; }
  int64_t rows_of_logits() const;
  int64_t rows_bytes() const { return rows_of_logits() * model_.hidden_size * core::size_of(step_.dtype); }
  int64_t vocabulary() const;
  int64_t tp() const { return step_.layout.tensor_model_parallel_size; }

  void norm_forward();
  // Of the output layer behind it. at_once: the gradient follows a part's loss; normed_stays: a layer of multi-token
  // prediction reads what the norm gives.
  void output_forward(bool at_once, bool normed_stays);
  int64_t logits_gradient(int64_t logits);
  void rows_gradient(int64_t gradient, bool deferred, int64_t beside = 0);
  // The gradient of what the norm gives, then that of what it reads.
  void output_backward(bool at_once, bool deferred);
  void norm_backward();

  void mtp_forward(const LayerSlots& slots);
  void mtp_backward(const LayerSlots& slots);
  void projection_forward();
  void projection_backward();

  const TrainingStep& step_;
  const core::TransformerConfig& model_;
  LayerReplay& layer_;
  ExpertReplay& experts_;
  HeldBytes& held_;
};

}  // namespace ms::layout
