// All analyses of a store that a verb asks for, ready to be printed: report/ computes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/breakdown.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/idle.h"
#include "profile/analysis/job_path.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/launch.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/mfu.h"
#include "profile/analysis/operators.h"
#include "profile/analysis/pipeline.h"
#include "profile/analysis/pop.h"
#include "profile/analysis/steps.h"
#include "profile/analysis/tensorboard_steps.h"
#include "profile/clock_line.h"

namespace ms::profile {

enum Section : unsigned {
  kFacts = 1,
  kBreakdown = 2,
  kPerStep = 4,
  kKernelTypes = 8,
  kKernels = 16,
  kSteps = 32,
  kFindings = 64,  // with imbalance
  kOperators = 128,
  kLaunches = 256,
  kQueues = 512,
  kIdle = 1024,
  kMemory = 2048,
  kRanks = 4096,
  kLinks = 8192,
  kPipeline = 16384,
  kPop = 32768,
  kEverySection = 65535,
  kTensorboardSteps = 65536,  // on demand only
};

struct RankResults {
  int rank = 0;
  Facts facts;
  ClockLine clock{{}};
  std::optional<Breakdown> breakdown;
  std::vector<StepBreakdown> per_step;
  int64_t devices_outside_steps = 0;
  std::vector<KernelType> kernel_types;
  std::vector<KernelRow> kernels;
  RankSteps steps;
  std::vector<OperatorRow> operators;
  std::optional<LaunchStats> launch;
  std::vector<QueueLength> queues;
  std::vector<StreamIdle> idle;
  std::map<std::string, MemoryOperation> memory_operations;
  std::map<std::pair<int, int>, MemoryTimeline> memory_timelines;
  std::vector<TensorboardStep> tensorboard_steps;
  std::vector<AscendStep> ascend_steps;
};

struct Results {
  unsigned sections = 0;
  std::vector<RankResults> ranks;
  ClusterSteps cluster;
  Imbalance imbalance;
  std::vector<Finding> findings;
  CrossRank cross;  // of kRanks, kLinks
  std::optional<Pop> pop;
  std::optional<Pipeline> pipeline;
  std::vector<std::string> warnings;  // for the user: "rank 3 has no device events: ..."
};

struct AnalysisOptions {
  std::vector<int64_t> steps;  // restricts everything to these steps; empty: all
  AlignMode align = AlignMode::kAuto;
  int64_t consecutive_kernel_delay = kConsecutiveKernelDelay;  // ns
  int64_t queue_limit = kQueueLimit;
  int threads = 1;  // that analyse ranks at the same time; the results do not depend on it
};

// Throws kNotFound for a step that no rank has.
Results analyze(const Store& store, unsigned sections, const AnalysisOptions& options = {});

// The critical path across the ranks of the store. Throws likewise.
JobPath analyze_job_path(const Store& store, const AnalysisOptions& options = {});

// FLOPs of each rank that has device events. Throws likewise.
std::vector<Mfu> analyze_mfu(const Store& store, const AnalysisOptions& options = {});

}  // namespace ms::profile
