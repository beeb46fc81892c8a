// How many tokens each expert of each layer of this rank had in a step, and the auxiliary losses of these layers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "train/ops/moe_balance.h"

namespace ms::train {

struct LayerLoad {
  std::vector<int64_t> tokens;  // of each expert, of all micro-batches
  int64_t dropped = 0;          // choices beyond a capacity
  ops::BalanceLosses losses;    // sums over micro-batches
  int64_t microbatches = 0;
};

class RoutingStatistics {
 public:
  // Of a layer (global index) and a micro-batch. Layers call it in their backward, which a training step runs once,
  // whatever it recomputes.
  void add(int64_t layer, const std::vector<int64_t>& tokens, int64_t dropped, const ops::BalanceLosses& losses) {
    LayerLoad& load = layers_[layer];
    load.tokens.resize(tokens.size());
    for (size_t e = 0; e < tokens.size(); ++e) load.tokens[e] += tokens[e];
    load.dropped += dropped;
    load.losses.aux += losses.aux;
    load.losses.seq_aux += losses.seq_aux;
    load.losses.z += losses.z;
    ++load.microbatches;
  }
  // By layer.
  const std::map<int64_t, LayerLoad>& layers() const { return layers_; }
  void clear() { layers_.clear(); }

 private:
  std::map<int64_t, LayerLoad> layers_;
};

}  // namespace ms::train
