// The critical path of a job, across its ranks: the chain of work, transfers and gaps that ends last. At every moment
// exactly one rank is on it; only what that rank does then delays the end of the job.
//
// Found backwards from the last end: along a rank until an operation in which it waited, then along the rank that it
// waited for (activity.h). The what-if answers come from a replay (job_replay.h), in which another rank may become the
// last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/activity.h"

namespace ms::profile {

struct PathPiece {
  uint32_t rank = 0;  // rank index
  int64_t start = 0, end = 0;
  Doing doing = Doing::kIdle;
  uint32_t comm = 0;  // of kCommunicating: index of the rank's CommSpan
};

std::string_view doing_name(Doing doing);  // "computing", "communication", "copies", "data_loading", ...

// A share of the path: computing by kernel, communication by operation, the rest by activity.
struct PathShare {
  std::string name;
  Doing doing = Doing::kIdle;
  int64_t ns = 0;
};

struct WhatIf {
  std::string change;      // "gemm 10 % faster", "rank 5 computes like the median rank"
  int64_t runtime_ns = 0;  // of the replay with this change
  double faster = 0;       // 1 - runtime / runtime of the trace
};

struct JobPath {
  std::string problem;                           // if not empty: why there is no result
  int64_t runtime_ns = 0;                        // from the first start to the last end
  std::vector<PathPiece> pieces;                 // by time, without gaps
  std::vector<PathShare> shares;                 // largest first; they add up to the runtime
  std::vector<std::pair<int, int64_t>> by_rank;  // rank, ns on the path
  std::vector<WhatIf> what_if;                   // largest gain first
};

// ranks, comms and cross as for activities(). Changes that are replayed: each kernel with a large share of the path 10
// % faster, transfers 10 % faster, each rank that computes more than the median rank at the median, no data loading, no
// checkpoints.
JobPath job_path(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross);

}  // namespace ms::profile
