#include "train/model/feed_forward.h"

#include "train/model/mlp.h"
#include "train/model/moe_layer.h"

namespace ms::train {

std::unique_ptr<FeedForward> make_feed_forward(RankState& state, ParameterStore& parameters, int64_t layer) {
  if (state.config.model.layer_has_experts(layer)) return std::make_unique<MoeLayer>(state, parameters, layer);
  return std::make_unique<Mlp>(state, parameters, layer);
}

}  // namespace ms::train
