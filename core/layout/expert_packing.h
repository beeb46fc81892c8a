// Which rank of an expert-parallel group has which expert of a layer, and how experts are packed onto ranks by their
// load (MindSpeed's expert placement: expert_placement_greedy, mindspeed/core/transformer/moe/expert_placement).
//
// A layer has E slots, of which each of n ranks has E / n, one rank's after the other's; an expert is in one slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::layout {

using ExpertSlots = std::vector<int32_t>;  // of each expert: a permutation of 0 to E - 1

ExpertSlots slots_in_order(int64_t num_experts);  // expert e is in slot e
bool is_permutation(std::span<const int32_t> slots);
// The expert of each slot.
std::vector<int32_t> experts_of_slots(std::span<const int32_t> slots);

// What each rank has of the load of its experts. ranks divides E.
std::vector<double> load_of_ranks(std::span<const double> load, std::span<const int32_t> slots, int ranks);
// The coefficient of variation of the ranks' load: standard deviation (of a sample, as torch.std) over the mean. 0 for
// one rank, or without any load.
double load_variation(std::span<const double> load, std::span<const int32_t> slots, int ranks);

// The experts in the order of their load, the highest first (of equal ones the lower number), each onto the rank with
// the lowest load that has room. Then ranks exchange what they have been given as a whole, so that more experts stay
// where they are in `now`; these keep their slots.
ExpertSlots pack_experts(std::span<const double> load, std::span<const int32_t> now, int ranks);

}  // namespace ms::layout
