#include "convert/megatron/layer_map.h"

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
    : extras_(extras) {
  const int pp = layout.pipeline_model_parallel_size, vpp = layout.virtual_pipeline_model_parallel_size;
  const auto& noops = extras.noop_layers;
  const int64_t slots = num_layers + static_cast<int64_t>(noops.size());
  if (extras.dualpipev && (pp < 2 || vpp != 2)) {
    refuse("--schedules-method dualpipev needs two chunks on each of at least two pipeline stages");
  }
  for (size_t i = 0; i < noops.size(); ++i) {
    if (noops[i] < 0 || noops[i] >= slots) {
      refuse("--noop-layers: ", noops[i], " is not one of ", slots, " layers, ", noops.size(), " of them no-op layers");
    }
    if (i > 0 && noops[i] <= noops[i - 1]) refuse("--noop-layers: ", noops[i], " occurs twice");
  }
  using Order = layout::Placement::Order;
  placement_ = {pp, vpp, extras.dualpipev ? Order::kV : Order::kRoundRobin, slots_of_chunks(slots, layout, extras),
                noops};
}

}  // namespace ms::convert
