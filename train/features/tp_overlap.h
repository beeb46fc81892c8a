// Communication of tensor parallelism beside computation: sums of gradients of inputs beside gradients of weights, and
// products in parts, each on its way while the next one is computed (CoC; MC2 chooses the parts itself).
// Source: megatron/core/tensor_parallel/layers.py; mindspeed/core/tensor_parallel/lcal_coc, ascend_turbo/mc2_linears.
#pragma once

#include "core/layout/tensor_overlap.h"
#include "train/features/feature.h"

namespace ms::train {

struct TpCommOverlapConfig {
  bool tp_comm_overlap = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = TpCommOverlapConfig;
    field("tp_comm_overlap", &C::tp_comm_overlap,
          "In the backward, sums and gathers of tensor parallelism are under way beside the products that do not need "
          "them");
  }
};

struct AscendCocConfig {
  bool use_ascend_coc = false;
  int coc_parallel_num = 1;
  int coc_mode = -1;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AscendCocConfig;
    field("use_ascend_coc", &C::use_ascend_coc,
          "Tensor parallelism overlaps: the backward as with --tp-comm-overlap, products as --coc-parallel-num says");
    field("coc_parallel_num", &C::coc_parallel_num,
          "Parts of a product, 1, 2, 4 or 8: one is computed while another is on its way");
    field("coc_mode", &C::coc_mode,
          "0: no overlap. 1: of the backward only. 2: products in parts, too. -1: 2 with parts, else 1");
  }
};

struct AscendMc2Config {
  bool use_ascend_mc2 = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = AscendMc2Config;
    field("use_ascend_mc2", &C::use_ascend_mc2,
          "As --use-ascend-coc, in as many parts as leave each of them large; with --sequence-parallel");
  }
};

// What the flags ask for, as far as the run can: nothing with one tensor-parallel rank, or with experts.
layout::TensorOverlap tensor_overlap(const TrainerConfig& config);

Feature tp_comm_overlap_feature();
Feature ascend_coc_feature();
Feature ascend_mc2_feature();

}  // namespace ms::train
