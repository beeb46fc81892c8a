// Moves experts of a layer between the ranks of its expert-parallel group: their weights, master weights and what else
// the optimizer keeps (executor.py, mindspeed/core/transformer/moe/expert_placement). A rank's parameters stay where
// they are in its buffers, and become another expert's: by their name, under which checkpoints have them, too.
//
// Each rank sends to the one with its number among the replicas of experts. With ZeRO that is another part of an expert
// than it has: replicas gather what leaves first, and send what the other rank keeps.
#pragma once

#include <cstdint>
#include <span>

#include "train/model/parameters.h"
#include "train/optim/optimizer.h"
#include "train/rank_state.h"

namespace ms::train {

// layer: global index. slots: of each of its experts (core/layout/expert_packing.h).

// From now on the parameters of this rank's slots are those of the experts in them. No value moves.
void name_slots(const RankState& state, ParameterStore& parameters, int64_t layer, std::span<const int32_t> slots);

struct MovedBytes {
  int64_t received = 0, gathered = 0;  // by this rank, from others (core/layout/formulas/expert_moves.h)
  MovedBytes& operator+=(const MovedBytes& more) {
    received += more.received;
    gathered += more.gathered;
    return *this;
  }
};
// The optimizer must hold its state. Weights of other ranks have arrived. Collective over the ranks that have the
// layer.
MovedBytes move_experts(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, int64_t layer,
                        std::span<const int32_t> from, std::span<const int32_t> to);

}  // namespace ms::train
