// Which rank makes the others wait, in the log. Source: Megatron's --log-straggler (megatron/core/utils.py,
// StragglerDetector), which compares the ranks' rates; here the waits of communication are, since a slow rank slows the
// steps of all alike.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct StragglerConfig {
  bool log_straggler = false;
  int64_t straggler_minmax_count = 1;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = StragglerConfig;
    field("log_straggler", &C::log_straggler,
          "Line after each log line: the ranks that made the others wait most since the last one, in seconds and in "
          "percent of the others' time, and those that waited most; costs one small all-reduce per line");
    field("straggler_minmax_count", &C::straggler_minmax_count, "With --log-straggler: how many ranks of each kind");
  }
};

Feature straggler_feature();

}  // namespace ms::train
