// Gradients that travel between replicas in bf16: half the bytes, for their last bits.
// Source: Megatron's --grad-reduce-in-bf16 (megatron/training/arguments.py), which adds up micro-batches in bf16 too.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct GradReduceInBf16Config {
  bool grad_reduce_in_bf16 = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("grad_reduce_in_bf16", &GradReduceInBf16Config::grad_reduce_in_bf16,
          "With --bf16: round gradients to bf16 before they are reduced over the data-parallel ranks, which halves the "
          "bytes. Micro-batches and replicas are still added up in fp32. For slow links");
  }
};

Feature grad_reduce_in_bf16_feature();

}  // namespace ms::train
