#include "core/layout/recompute_plan.h"

#include <limits>

namespace ms::layout {

RecomputePlan::RecomputePlan(const std::string& granularity, const std::string& method, int64_t num_layers) {
  if (granularity != "full") return;
  first_kept_ = method == "uniform" ? std::numeric_limits<int64_t>::max() : num_layers;
  if (method == "uniform") group_ = num_layers;
}

}  // namespace ms::layout
