// POP efficiencies (the metrics of the Performance Optimisation and Productivity centre): which part of the ranks' time
// is useful computing, and whether imbalance, dependencies or transfers take the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "profile/analysis/cross_rank.h"

namespace ms::profile {

// parallel_efficiency = load_balance * communication_efficiency, and communication_efficiency =
// serialization_efficiency * transfer_efficiency. Useful time is computing; the runtime is from the first start to the
// last end of device work, on one clock.
struct Pop {
  int64_t runtime = 0;
  std::vector<std::pair<int, int64_t>> useful;  // by rank
  double load_balance = 0, communication_efficiency = 0, parallel_efficiency = 0;
  // From a replay without transfers: every collective ends at its last arrival, local work and gaps keep their length.
  // Set only if the matching is reliable.
  std::optional<double> serialization_efficiency, transfer_efficiency;
  int64_t offload_idle = 0;  // time in which no rank's device is busy
};
std::optional<Pop> pop_efficiencies(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                    const CrossRank& cross, core::ThreadPool& pool);

}  // namespace ms::profile
