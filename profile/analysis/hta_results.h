// All results of --compat hta, for every rank; printed by hta_tables.h and json_hta.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profile/analysis/hta_breakdown.h"
#include "profile/analysis/hta_streams.h"
#include "profile/store.h"

namespace ms::profile {

struct HtaRank {
  int rank = 0;
  std::optional<HtaBreakdown> breakdown;
  std::vector<HtaStreamIdle> idle;
  std::map<int64_t, HtaSummary> queues;          // by stream
  std::map<std::string, HtaSummary> bandwidths;  // GB/s by kind of copy
};

struct HtaResults {
  std::vector<int64_t> steps;
  std::vector<HtaRank> ranks;
  std::vector<int> stragglers;
};

// Rounds the traces of the store in place.
HtaResults hta_results(Store& store, bool keep_last_step, int64_t consecutive_delay = kConsecutiveKernelDelay);

}  // namespace ms::profile
