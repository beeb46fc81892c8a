#include "train/model/dropout.h"

#include "core/error.h"
#include "core/rng.h"

namespace ms::train {

ops::Dropout dropout_of(const RankState& state, std::string_view place, double probability) {
  const core::Rng rng(static_cast<uint64_t>(state.config.rng.seed), core::cat("dropout ", place));
  return {static_cast<float>(probability), rng.key()};
}

HiddenDropout::HiddenDropout(RankState& state, std::string_view place)
    : state_(state), dropout_(dropout_of(state, place, state.config.model.hidden_dropout)) {}

void HiddenDropout::apply(const core::TensorView& x, const SequenceContext& sequence) const {
  if (!drops(sequence.samples)) return;
  const int64_t first = state_.sequence_parallel() ? state_.tp_rank() * x.dim(0) : 0;
  sequence.share.for_each_run(first, first + x.dim(0), [&](int64_t row, int64_t position, int64_t count) {
    ops::dropout_inplace(state_.ops, x.rows(row - first, row - first + count), dropout_, position, sequence.samples);
  });
}

}  // namespace ms::train
