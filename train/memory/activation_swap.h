// Moves tensors that layers keep for their backward to a tier outside memory, and back one layer ahead of the backward
// that reads them (MindSpeed's swap-attention; mindspeed/core/memory/swap_attention/prefetch.py).
//
// Of a stage, at most two layers have these tensors in memory: in forward the one that computes and the one before,
// which is being written; in backward the one that computes and the next, which is being read. When tensors come and go
// depends on the schedule alone, never on the speed of the disk: where that is behind, the step waits
// (core/layout/formulas/memory.cpp replays it).
#pragma once

#include "train/memory/activations.h"
#include "train/memory/tensor_swap.h"

namespace ms::train {

class ActivationSwap {
 public:
  // tensors: not owned.
  explicit ActivationSwap(TensorSwap& tensors) : tensors_(tensors) {}

  // The layer's forward has ended: what its slots say is swapped begins to leave. Call settle() before.
  void swap_out(LayerActivations& layer);
  // What was leaving has left memory.
  void settle();
  // The layer's backward is the next but one: what is on the tier begins to return. Call settle() before.
  void prefetch(LayerActivations& layer);
  // The layer's tensors are in memory.
  void swap_in(LayerActivations& layer);

 private:
  TensorSwap& tensors_;
  LayerActivations* leaving_ = nullptr;
};

}  // namespace ms::train
