// Describes exposed communication: the collective that takes most of it, with its group, size and rate.
#pragma once

#include <string>

#include "profile/analysis/cross_rank.h"

namespace ms::profile {

// "allreduce of 25.00 MB in group dp [0, 1]: 310.52 ms in 12 calls, hidden or not, 12.30 GB/s, best 17.10 GB/s seen":
// the operation that takes longest over all ranks, without the time that ranks wait for each other if it is known.
// Rates are bytes / time of calls with at least half as many bytes. Empty if no call has a known type.
std::string largest_communication(const std::vector<RankDevices>& ranks, const CrossRank& cross);

}  // namespace ms::profile
