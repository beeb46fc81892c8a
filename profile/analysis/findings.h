// The findings of `msprof analyze`: where time is lost, largest first.
//
// The time of a rank is that of its steps, or without steps from its first device event to its last. Its idle time is
// split without overlap into data loading, checkpoint stalls (both by the host phases of the thread that runs the
// steps), and the rest by what the host did meanwhile (idle_causes.h), one finding each. Imbalance is the part of
// waiting that equal work would remove; it lies within exposed communication (and idle time) and is not added to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/idle_causes.h"

namespace ms::profile {

enum class FindingKind : uint8_t {
  kExposedCommunication,
  kImbalance,  // sum over ranks of (largest computing - own computing)
  kDataLoading,
  kCheckpoint,
  kExposedMemory,
  kIdle,            // one for each cause
  kWaiting,         // for ranks that arrive late at collectives; worst: the rank blamed most
  kPipelineBubble,  // for other stages; worst: the rank that computes longest
  kSlowLink,        // transfer time above that of the median link; worst: the sender
};
std::string_view finding_name(FindingKind kind);  // "exposed_communication", ...

struct Finding {
  FindingKind kind = FindingKind::kIdle;
  int64_t lost_ns = 0;  // over all ranks
  double share = 0;     // of the summed time of all ranks
  int worst_rank = 0;   // rank that lost most; for imbalance the one that others wait for
  int64_t worst_ns = 0;
  std::string detail;                     // kernel or host phase that contributes most; may be empty
  IdleCause cause = IdleCause::kUnknown;  // of kIdle
  std::string where;                      // of kIdle: place that contributes most (idle_causes.h); may be empty
};

using Findings = std::vector<Finding>;

// Host phases of the threads that run the steps (a writer thread stalls nothing): union of their time, on the rank's
// own clock, and the name that takes longest.
enum class HostPhase : uint8_t { kData, kCheckpoint };
struct HostPhases {
  IntervalSet time;
  std::string longest;
};
HostPhases host_phases(const RankTrace& trace, HostPhase phase);

struct RankDevices {
  const RankTrace* trace = nullptr;
  const DeviceView* view = nullptr;
};

// Balance of computing across ranks. load_balance = average computing / largest computing.
struct Imbalance {
  std::vector<std::pair<int, int64_t>> computing_ns;  // rank, total computing time
  double load_balance = 1;
  int slowest_rank = 0;
};
Imbalance imbalance(const std::vector<RankDevices>& ranks, core::ThreadPool& pool);

// The causes of a rank's device gaps, without data loading and checkpoints.
IdleReasons rank_idle_reasons(const RankTrace& trace, const DeviceView& view);

// The summed time of all ranks, and the part spent computing.
struct JobTime {
  int64_t wall_ns = 0, computing_ns = 0;
};

// Findings with lost_ns > 0, largest first (ties: in the order of FindingKind). idle: rank_idle_reasons of each rank;
// even: of these ranks.
struct Losses {
  Findings findings;
  JobTime time;
};
Losses find_losses(const std::vector<RankDevices>& ranks, const std::vector<const IdleReasons*>& idle,
                   const Imbalance& even, core::ThreadPool& pool);

}  // namespace ms::profile
