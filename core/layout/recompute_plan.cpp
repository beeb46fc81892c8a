#include "core/layout/recompute_plan.h"

#include <limits>
#include <utility>

namespace ms::layout {

RecomputePlan::RecomputePlan(RecomputeSettings settings) : settings_(std::move(settings)) {
  if (settings_.granularity != "full") return;
  const bool uniform = settings_.method == "uniform";
  first_kept_ = uniform ? std::numeric_limits<int64_t>::max() : settings_.num_layers;
  if (uniform) group_ = settings_.num_layers;
}

RecomputedOutputs RecomputePlan::recomputed_outputs(int64_t layer) const {
  const int64_t behind = layer - (settings_.method == "block" ? settings_.num_layers : 0);
  const auto is_among = [&](int64_t num_layers) { return behind >= 0 && (num_layers == 0 || behind < num_layers); };
  return {.norms = (settings_.norm && is_among(settings_.norm_num_layers)) || settings_.norm_module,
          .activation = settings_.activation && is_among(settings_.activation_num_layers),
          .mlp = settings_.mlp_module};
}

}  // namespace ms::layout
