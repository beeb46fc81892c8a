// How many ranks share each sample of a global batch, and which, by its length and what it costs.
//
// A step is a number of rounds, in which all ranks take part: a round has a degree, a power of two up to CP, and every
// `degree` neighbours of the dp x cp ranks have a micro-batch of it. So every rank has as many micro-batches, and ranks
// that share one have the same number of it. Megatron's BalancedCPScheduler
// (megatron/core/pipeline_parallel/hybrid_cp_schedule.py) gives the ranks of a group of samples several degrees at a
// time, and different numbers of micro-batches, for which it has a barrier behind each group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/data/deal.h"
#include "train/data/sampler.h"

namespace ms::train {

struct DegreeSettings {
  int dp = 1, cp = 1;            // cp: a power of two up to layout::kMaxChosenCp
  int64_t max_rows = 0;          // most tokens of a sample on a rank; of the longest sample on cp ranks at most
  int64_t micro_batch_size = 1;  // samples
};

struct DegreeDeal {
  std::vector<int> degrees;  // of each round
  // Which sample of the global batch stands at each place: round after round, in each the micro-batches of its
  // neighbours, in their order.
  std::vector<int64_t> order;
  DealtCost cost;
};

// lengths, costs: of each sample of the global batch, in its order; a multiple of dp x micro_batch_size. The longest
// come first. A round has the least degree that its longest sample needs and with which what is left fills whole
// rounds, so that the longest of all are shared by more where numbers do not come out even (Megatron raises degrees,
// too, rather than leave ranks idle). In a round the costliest goes to the neighbours with the least so far. Where the
// slowest rank has more than 1.1 times the mean, degrees of rounds whose longest sample costs far more than the others
// are raised, as far as that helps. The same input gives the same deal on every rank. O(samples x log(samples)).
DegreeDeal deal_by_degree(std::span<const int64_t> lengths, std::span<const double> costs,
                          const DegreeSettings& settings);

// Fills `batch` with the micro-batches of number `rank` of the dp x cp ranks, cp fastest, as choose_samples() does.
void choose_samples(const DegreeDeal& deal, const DegreeSettings& settings, int64_t consumed_samples, int rank,
                    std::vector<Microbatch>& batch);

}  // namespace ms::train
