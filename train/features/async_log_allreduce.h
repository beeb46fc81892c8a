// The sums of the loss over ranks, which only the log and the checks of a step read, beside the reduction of gradients.
// Source: mindspeed/core/data_parallel/async_log_allreduce.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct AsyncLogAllreduceConfig {
  bool async_log_allreduce = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("async_log_allreduce", &AsyncLogAllreduceConfig::async_log_allreduce,
          "Wait for the sum of the loss over the data-parallel ranks after the reduction of gradients, not before it; "
          "changes no bit");
  }
};

Feature async_log_allreduce_feature();

}  // namespace ms::train
