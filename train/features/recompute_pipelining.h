// Recomputation as actions of the pipeline's schedule, where stages would be idle.
// Source: MindSpeed's recompute independent pipelining, --recompute-in-bubble and --recompute-in-advance.
#pragma once

#include "core/layout/schedule.h"
#include "train/features/feature.h"

namespace ms::train {

struct RecomputePipeliningConfig {
  bool recompute_in_bubble = false;
  bool recompute_in_advance = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RecomputePipeliningConfig;
    field("recompute_in_bubble", &C::recompute_in_bubble,
          "Interleaved schedule: keep the activations of at most PP x virtual stages chunks, as many as the last stage "
          "needs; drop the others, and compute them again where the stage would be idle");
    field(
        "recompute_in_advance", &C::recompute_in_advance,
        "Interleaved schedule with --recompute-granularity full: compute dropped activations again before the gradient "
        "arrives, and keep those of the last chunk of the last stage");
  }
};

layout::RecomputeTime recompute_time(const RecomputePipeliningConfig& config);

Feature recompute_pipelining_feature();

}  // namespace ms::train
