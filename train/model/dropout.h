// Dropout of hidden states at one place in the model. The mask depends on the run's seed, the name of the place and the
// sample, but not on the layout (train/ops/dropout.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor.h"
#include "train/model/sequence_context.h"
#include "train/ops/dropout.h"
#include "train/rank_state.h"

namespace ms::train {

// The masks of one place. place: "decoder.layers.3.mlp", global layer index.
ops::Dropout dropout_of(const RankState& state, std::string_view place, double probability);

class HiddenDropout {
 public:
  HiddenDropout(RankState& state, std::string_view place);

  // Whether it changes anything. samples: their numbers in the run; empty outside training.
  bool drops(std::span<const int64_t> samples) const { return dropout_.probability > 0 && !samples.empty(); }
  // x [seq', batch, hidden], in place: forward on values, backward on gradients.
  void apply(const core::TensorView& x, const SequenceContext& sequence) const;

 private:
  RankState& state_;
  ops::Dropout dropout_;
};

}  // namespace ms::train
