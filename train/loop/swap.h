// The swap of a run (train/memory/activation_swap.h), as its flags have it.
#pragma once

#include <memory>

#include "train/memory/activation_swap.h"
#include "train/rank_state.h"

namespace ms::train {

// With the space that a step of --global-batch-size needs reserved. Warns if the tier is in memory. Throws kNotFound
// and kIo, naming --swap-dir.
std::unique_ptr<ActivationSwap> open_swap(RankState& state);

// Throws what the tier has failed with, and what to do about it.
void check_swap_tier(const ActivationSwap& swap);

}  // namespace ms::train
