#include "core/layout/recompute_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ms::layout {

RecomputePlan::RecomputePlan(RecomputeSettings settings) : settings_(std::move(settings)) {
  if (settings_.granularity != "full") return;
  const bool uniform = settings_.method == "uniform";
  first_kept_ = settings_.method == "block" ? settings_.num_layers : std::numeric_limits<int64_t>::max();
  if (uniform) group_ = settings_.num_layers;
}

RecomputePlan RecomputePlan::of_place(Place place) const {
  if (!settings_.module_list.empty()) return of_stage(place.stage);
  if (settings_.chunks == 1) return *this;
  RecomputeSettings own = settings_;
  own.chunks = 1;
  const int chunk = place.chunk;
  // Layer l of the chunk is number l x chunks + chunk of the stage (MindSpeed's should_recompute).
  const auto share = [&](int64_t& num_layers) {
    return num_layers = std::max<int64_t>(0, (num_layers - chunk + settings_.chunks - 1) / settings_.chunks);
  };
  share(own.num_layers);
  share(own.mlp_num_layers);
  share(own.zero_memory_num_layers);
  if (settings_.norm_num_layers > 0) own.norm = share(own.norm_num_layers) > 0 && own.norm;
  if (settings_.activation_num_layers > 0) own.activation = share(own.activation_num_layers) > 0 && own.activation;
  return RecomputePlan(std::move(own));
}

RecomputePlan RecomputePlan::of_stage(int stage) const {
  RecomputeSettings own = settings_;
  const int64_t num_layers = own.module_list.at(static_cast<size_t>(stage));
  own.module_list.clear();
  if (own.module == RecomputedModule::kMlp) {
    own.mlp_num_layers = num_layers;
  } else {
    own.granularity = "full";
    own.method = "block";
    own.num_layers = num_layers;
  }
  return RecomputePlan(std::move(own));
}

RecomputePlan RecomputePlan::with_module_list(std::vector<int64_t> list, RecomputedModule module) const {
  RecomputeSettings other = settings_;
  other.module_list = std::move(list);
  other.module = module;
  return RecomputePlan(std::move(other));
}

RecomputedParts RecomputePlan::recomputed_parts(int64_t layer) const {
  if (settings_.method == "block" && recomputes(layer)) return 0;
  const int64_t behind = layer - (settings_.method == "block" ? settings_.num_layers : 0);
  const auto is_among = [&](int64_t num_layers) { return behind >= 0 && (num_layers == 0 || behind < num_layers); };
  RecomputedParts parts = 0;
  if ((settings_.norm && is_among(settings_.norm_num_layers)) || settings_.norm_module) parts |= kRecomputedNorms;
  if (settings_.activation && is_among(settings_.activation_num_layers)) parts |= kRecomputedActivation;
  if (settings_.latent_module && !recomputes(layer)) parts |= kRecomputedLatent;
  if (settings_.mlp_module || layer < settings_.mlp_num_layers) parts |= kRecomputedMlp;
  if (settings_.moe_module) parts |= kRecomputedMoe;
  if (settings_.moe_act_module) parts |= kRecomputedMoeActivation;
  if (settings_.shared_experts_module) parts |= kRecomputedSharedExperts;
  if (settings_.zero_memory_level == 0) parts |= kRecomputedDispatch;
  if (settings_.zero_memory_level == 1)
    parts |=
        layer < settings_.zero_memory_num_layers ? kRecomputedDispatch | kRecomputedExperts : kRecomputedMoeActivation;
  return parts;
}

}  // namespace ms::layout
