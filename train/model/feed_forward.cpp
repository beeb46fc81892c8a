#include "train/model/feed_forward.h"

#include "train/model/mlp.h"

namespace ms::train {

std::unique_ptr<FeedForward> make_feed_forward(RankState& state, ParameterStore& parameters, int64_t layer) {
  return std::make_unique<Mlp>(state, parameters, layer);
}

}  // namespace ms::train
