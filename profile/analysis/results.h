// All analyses of a store that a verb asks for, ready to be printed: report/ computes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profile/analysis/breakdown.h"
#include "profile/analysis/facts.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/kernels.h"
#include "profile/analysis/steps.h"
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
  kEverySection = 127,
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
};

struct Results {
  unsigned sections = 0;
  std::vector<RankResults> ranks;
  ClusterSteps cluster;
  Imbalance imbalance;
  std::vector<Finding> findings;
  std::vector<std::string> warnings;  // for the user: "rank 3 has no device events: ..."
};

// step_numbers: restricts everything to these steps; empty: all. Throws kNotFound for a step that no rank has.
Results analyze(const Store& store, unsigned sections, const std::vector<int64_t>& step_numbers = {});

}  // namespace ms::profile
