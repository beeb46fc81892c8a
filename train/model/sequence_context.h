// What the layers know about the rows of a micro-batch besides their hidden states.
#pragma once

#include <cstdint>
#include <span>

#include "core/layout/context_parallel.h"
#include "train/data/sampler.h"

namespace ms::train {

struct SequenceContext {
  std::span<const int64_t> samples;  // [batch]: numbers in the run, for dropout; empty outside training
  layout::SequenceShare share;       // which positions of the sequences the rows are
  // [seq, batch], of the rotary embedding; empty: row s has position s. Rotary scores depend on differences of
  // positions alone, so positions begin anew in each document only where documents do not see each other (as in
  // Megatron, whose rotary embedding takes no position ids).
  std::span<const int32_t> rotary_positions;
  std::span<const int64_t> document_ends;  // ops::AttentionParams
  const layout::MaskGrid* grid = nullptr;  // what positions of each sample see; null: those before them
  // [batch]: of each sequence, positions before its padding, which no expert computes; empty: none is padded.
  std::span<const int64_t> lengths;
  double auxiliary_scale = 0;  // LossScales

  bool training() const { return !samples.empty(); }
};

// Refers to the micro-batch. training: false: nothing is dropped.
inline SequenceContext sequence_context(const Microbatch& microbatch, bool training, double auxiliary_scale = 0) {
  SequenceContext context{.share = microbatch.share,
                          .rotary_positions = microbatch.row_positions,
                          .document_ends = microbatch.document_ends,
                          .grid = microbatch.grid.get(),
                          .lengths = microbatch.lengths,
                          .auxiliary_scale = auxiliary_scale};
  if (training) context.samples = microbatch.samples;
  if (!microbatch.document_ends.empty() && !microbatch.positions.empty())
    context.rotary_positions = microbatch.positions;
  return context;
}

}  // namespace ms::train
