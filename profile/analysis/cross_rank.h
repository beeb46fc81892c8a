// Waiting and blame across ranks: who was late, who waited, which rank and which link is slow.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profile/analysis/clock_alignment.h"

namespace ms::profile {

// One collective. Times on the reference's clock. wait(r) = clamp(last arrival - own start, 0, own duration).
struct WaitRow {
  std::string key, type, group;
  int last_arriver = 0;  // rank
  int64_t start = 0, skew = 0, transfer = 0, end_spread = 0, bytes = -1;
  struct Member {
    int rank = 0;
    int64_t start = 0, wait = 0, duration = 0;
    uint32_t event = 0;
  };
  std::vector<Member> members;
};

struct RankWaits {
  int64_t wait = 0, blame = 0, times_last = 0, instances = 0;
  int64_t late_sender = 0, late_receiver = 0;  // time this rank waited as receiver, as sender
};

// Why a slow rank is late, compared with the median of the others.
enum class SlowCause : uint8_t { kComputing, kHostWait, kOwnWaiting, kUnknown };
std::string_view slow_cause_name(SlowCause cause);

struct SlowRank {
  int rank = 0;
  int64_t times_last = 0, instances = 0, blame = 0;
  double p_value = 1, blame_share = 0;
  SlowCause cause = SlowCause::kUnknown;
  int64_t more_ns = 0;      // excess over the median rank, of what the cause names
  std::string kernel;       // for kComputing: the kernel that adds most
  double kernel_ratio = 0;  // its time / median of the others; 0: they do not run it
  int64_t kernel_more_ns = 0;
};

struct Link {
  int64_t messages = 0, bytes = 0, transfer = 0;  // transfer: sum of min end - max start
};
struct SlowLink {
  int source = 0, destination = 0;
  double gb_per_s = 0, of_median = 0;
};

// Bandwidth of one kind of collective: algbw = bytes / transfer, busbw = algbw times the algorithm's factor.
struct CollectiveRate {
  std::string type, group;
  int64_t size_class = 0;  // bytes rounded down to a power of two
  int64_t ranks = 0, instances = 0;
  double mean_algbw = 0, best_algbw = 0, worst_algbw = 0, mean_busbw = 0;
};

struct CrossRank {
  ClockAlignment clocks;
  std::vector<int> ranks;
  int64_t instances = 0, instances_in_all_ranks = 0, messages = 0;
  bool groups_incomplete = false;
  // Set only if the matching is reliable:
  std::vector<WaitRow> rows;  // by time
  std::map<int, RankWaits> by_rank;
  std::vector<SlowRank> slow_ranks;  // by blame
  std::map<int, int64_t> dixon_votes;
  std::map<std::pair<int, int>, Link> links;
  std::vector<SlowLink> slow_links;
  std::vector<CollectiveRate> rates;
};

// Compares `rank` with the median of the others: sets cause, more_ns and kernel of the result.
SlowRank explain_late(const std::vector<RankDevices>& ranks, const CrossRank& cross, int rank);

CrossRank cross_rank(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode);

}  // namespace ms::profile
