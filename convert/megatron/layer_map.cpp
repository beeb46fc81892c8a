#include "convert/megatron/layer_map.h"

#include <algorithm>

#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw core::Error(core::ErrorCode::kInvalidArgument, cat(parts...));
}

// Number of slots per chunk, in the order in which a token passes them.
std::vector<int64_t> slots_of_chunks(int64_t slots, const layout::ModelLayout& layout, const PipelineExtras& extras) {
  if (!layout.num_layer_list.empty()) {
    if (extras.any()) refuse("--num-layer-list cannot be combined with --noop-layers or --schedules-method dualpipev");
    return layout.num_layer_list;
  }
  const int64_t pp = layout.pipeline_model_parallel_size, vpp = layout.virtual_pipeline_model_parallel_size;
  if (slots % (pp * vpp) != 0) {
    refuse(slots, " layers", extras.noop_layers.empty() ? "" : ", including no-op layers,", " are not a multiple of ",
           vpp == 1 ? "" : cat(vpp, " chunks on each of "), "the ", pp, " pipeline stages");
  }
  return std::vector<int64_t>(static_cast<size_t>(pp * vpp), slots / (pp * vpp));
}

}  // namespace

MegatronLayerMap::MegatronLayerMap(int64_t num_layers, const layout::ModelLayout& layout, const PipelineExtras& extras)
    : pp_(layout.pipeline_model_parallel_size), vpp_(layout.virtual_pipeline_model_parallel_size), extras_(extras) {
  const auto& noops = extras.noop_layers;
  const int64_t slots = num_layers + static_cast<int64_t>(noops.size());
  if (extras.dualpipev && (pp_ < 2 || vpp_ != 2)) {
    refuse("--schedules-method dualpipev needs two chunks on each of at least two pipeline stages");
  }
  for (size_t i = 0; i < noops.size(); ++i) {
    if (noops[i] < 0 || noops[i] >= slots) {
      refuse("--noop-layers: ", noops[i], " is not one of ", slots, " layers, ", noops.size(), " of them no-op layers");
    }
    if (i > 0 && noops[i] <= noops[i - 1]) refuse("--noop-layers: ", noops[i], " occurs twice");
  }
  chunks_.resize(static_cast<size_t>(pp_) * static_cast<size_t>(vpp_));
  places_.reserve(static_cast<size_t>(num_layers));
  int64_t slot = 0, layer = 0;
  int order = 0;
  for (const int64_t count : slots_of_chunks(slots, layout, extras)) {
    const int chunk = order / pp_, across = order % pp_;
    const int pp = extras.dualpipev && chunk == 1 ? pp_ - 1 - across : across;
    std::vector<int64_t>& held = chunks_[index_of(pp, chunk)];
    for (int64_t within = 0; within < count; ++within, ++slot) {
      const bool is_noop = std::binary_search(noops.begin(), noops.end(), slot);
      held.push_back(is_noop ? kNoLayer : layer);
      if (!is_noop) places_.push_back({pp, chunk, within});
      layer += is_noop ? 0 : 1;
    }
    ++order;
  }
}

int64_t MegatronLayerMap::num_slots() const {
  return static_cast<int64_t>(places_.size() + extras_.noop_layers.size());
}

}  // namespace ms::convert
