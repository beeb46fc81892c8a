// Which data-parallel rank computes which samples of a global batch, by what each costs.
//
// Samples of one length cost the same in all products but those of attention, which take the square of the length of
// each document; documents that are samples of their own differ in all of them. Every rank gets as many samples, so
// that all ranks have the same micro-batches to reduce gradients behind, and about the same sum of costs. The global
// batch stays as it is. Megatron's BalancedCPScheduler (megatron/core/pipeline_parallel/hybrid_cp_schedule.py) deals
// documents one by one instead, and gives its ranks different numbers of micro-batches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ms::train {

// Of the ranks' costs, the largest as a multiple of their mean: 1 if all are equal.
struct DealtCost {
  double slowest = 1;
  double slowest_in_order = 1;  // if samples were taken in their order
  // Where the number of ranks that share a sample is chosen (degree_deal.h): rounds of 1, 2, 4, .. ranks; else all 0.
  std::array<int64_t, 11> rounds{};
  bool chooses_degrees() const {
    return std::ranges::any_of(rounds, [](int64_t of) { return of > 0; });
  }
};

// The largest sum of costs of a rank, as a multiple of the mean. order: empty: samples as they come.
double slowest_rank(std::span<const double> costs, std::span<const int64_t> order, int ranks, int64_t micro_batch_size);

struct Deal {
  // Which sample of the global batch stands at each place, by which choose_samples() gives samples to ranks.
  std::vector<int64_t> order;
  DealtCost cost;
};

// costs: of each sample of the global batch, in its order, in any unit; a multiple of ranks x micro_batch_size.
//
// Rounds of ranks x micro_batch_size samples begin with the costliest. The costliest of a round goes to the rank with
// the least so far; a rank that has micro_batch_size of them waits for the next round. So the micro-batches with one
// number cost about the same on all ranks, too. Where that is no better than the order in which samples come, they keep
// it. No deal helps a rank whose one sample costs more than a rank's share. The same input gives the same deal on every
// rank. O(samples x log(samples)).
Deal deal_by_cost(std::span<const double> costs, int ranks, int64_t micro_batch_size);

}  // namespace ms::train
