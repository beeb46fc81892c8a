// The load of experts of a step over all ranks: which experts had how many tokens, and what the auxiliary losses were.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/comm/communicator.h"
#include "core/transformer_config.h"
#include "train/model/routing_statistics.h"
#include "train/rank_state.h"

namespace ms::train {

using ExpertLoads = std::map<int64_t, LayerLoad>;  // by layer (global index); empty: a model without experts

// Of all layers with experts, from what each rank has counted of its own. etp: ranks that share each expert. Throws
// kInternal unless each row that was sent has been received. Collective.
ExpertLoads sum_over_ranks(core::Communicator& world, const core::TransformerConfig& model,
                           const RoutingStatistics& own, int etp = 1);
// Says of the experts of a step where they have been, if they move.
void add_holders(const RankState& state, ExpertLoads& loads);
// A counter of the trace for each expert of this rank and layer: the rows that it had in a step.
void record_rows(const RankState& state, const RoutingStatistics& own);
// The same layers of more steps.
void add_loads(ExpertLoads& sum, const ExpertLoads& more);

// The mean over micro-batches and layers with experts (track_moe_metrics,
// megatron/core/transformer/moe/moe_utils.py).
ops::BalanceLosses mean_losses(const ExpertLoads& loads);

// Calls visit(name, value) for each loss that is not 0, under Megatron's names.
template <class Visit>
void for_each_loss(const ops::BalanceLosses& losses, const Visit& visit) {
  if (losses.aux != 0) visit("load_balancing_loss", losses.aux);
  if (losses.seq_aux != 0) visit("seq_load_balancing_loss", losses.seq_aux);
  if (losses.global_aux != 0) visit("global_load_balancing_loss", losses.global_aux);
  if (losses.z != 0) visit("z_loss", losses.z);
}

// The tokens of the busiest expert of a layer, as a multiple of the mean of its experts. 1: even; 0: no tokens.
struct BusiestExpert {
  int64_t layer = 0, expert = 0;
  double share = 0;
};
// Of all layers.
BusiestExpert busiest_expert(const ExpertLoads& loads);

// Of the choices of all layers those beyond an expert's capacity, whose tokens are in no expert's load.
double dropped_share(const ExpertLoads& loads);

// Experts with more than twice their share of a layer's tokens, and those without any: "hot experts: layer 1: 3 (2.4
// x); dead experts: layer 0: 2 5, layer 1: 7"; of a long list the first 16 and the number of the others. Empty: none.
std::string hot_and_dead_experts(const ExpertLoads& loads);

}  // namespace ms::train
