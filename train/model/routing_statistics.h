// How many tokens each expert of each layer of this rank had in a step, and the auxiliary losses of these layers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "train/ops/moe_balance.h"

namespace ms::train {

class RoutingTrace;

struct LayerLoad {
  std::vector<int64_t> tokens;  // of each expert, of all micro-batches
  int64_t received = 0;         // rows of the experts of this rank
  int64_t dropped = 0;          // choices beyond a capacity
  ops::BalanceLosses losses;    // sums over micro-batches
  int64_t microbatches = 0;
  std::vector<int64_t> rows;  // of each expert of this rank; empty in sums over ranks
  int64_t mtp = -1;           // of multi-token prediction, which layer; in sums over ranks
  // In sums over ranks, where experts move: the rank of its expert-parallel group that has each expert.
  std::vector<int32_t> holders;

  LayerLoad& operator+=(const LayerLoad& more) {
    tokens.resize(more.tokens.size());
    for (size_t e = 0; e < tokens.size(); ++e) tokens[e] += more.tokens[e];
    received += more.received;
    dropped += more.dropped;
    losses += more.losses;
    microbatches += more.microbatches;
    rows.resize(more.rows.size());
    for (size_t e = 0; e < rows.size(); ++e) rows[e] += more.rows[e];
    mtp = more.mtp;
    holders = more.holders;
    return *this;
  }
};

class RoutingStatistics {
 public:
  // Of a layer (global index) and a micro-batch. Layers call it in their backward, which a training step runs once,
  // whatever it recomputes.
  void add(int64_t layer, const LayerLoad& load) { layers_[layer] += load; }
  // By layer.
  const std::map<int64_t, LayerLoad>& layers() const { return layers_; }

  // Makes of counts of one micro-batch the mean of those of the layer so far in the step.
  void average(int64_t layer, std::span<double> counts) {
    Sums& sums = sums_[layer];
    sums.counts.resize(counts.size());
    ++sums.microbatches;
    for (size_t e = 0; e < counts.size(); ++e) {
      sums.counts[e] += counts[e];
      counts[e] = sums.counts[e] / sums.microbatches;
    }
  }

  // Where choices are written, too; null: nowhere. Not owned.
  void set_trace(RoutingTrace* trace) { trace_ = trace; }
  RoutingTrace* trace() const { return trace_; }

  void clear() {
    layers_.clear();
    sums_.clear();
  }

 private:
  struct Sums {
    std::vector<double> counts;
    double microbatches = 0;
  };
  std::map<int64_t, LayerLoad> layers_;
  std::map<int64_t, Sums> sums_;
  RoutingTrace* trace_ = nullptr;
};

}  // namespace ms::train
