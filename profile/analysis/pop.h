// POP efficiencies (traces.md 10.7): how much of the ranks' time is useful computing, and what takes the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "profile/analysis/cross_rank.h"

namespace ms::profile {

// PE = LB * CommE, CommE = SerE * TE. Useful is |C|; the runtime is from the first start to the last end of device
// work, in one clock.
struct Pop {
  int64_t runtime = 0;
  std::vector<std::pair<int, int64_t>> useful;  // by rank
  double load_balance = 0, communication_efficiency = 0, parallel_efficiency = 0;
  // Of a replay without transfer: every collective ends at its last arrival, local work and gaps keep their length.
  // Only when the matching is reliable.
  std::optional<double> serialization_efficiency, transfer_efficiency;
  int64_t offload_idle = 0;  // time with no rank's device busy
};
std::optional<Pop> pop_efficiencies(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                    const CrossRank& cross, core::ThreadPool& pool);

}  // namespace ms::profile
