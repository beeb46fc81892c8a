// The bf16 weights are the high halves of the fp32 master weights. Source: MindSpeed's --reuse-fp32-param
// (mindspeed/features_manager/memory/reuse_fp32_param.py).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct ReuseFp32ParamConfig {
  bool reuse_fp32_param = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ReuseFp32ParamConfig;
    field("reuse_fp32_param", &C::reuse_fp32_param,
          "With --bf16: store only the low 16 bits of the fp32 master weights, the bf16 weights are the high 16; 2 "
          "bytes per parameter less, bitwise identical");
  }
};

Feature reuse_fp32_param_feature();

}  // namespace ms::train
