// Thresholds for CI pipelines: checks whether a run is as fast as required.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profile/analysis/results.h"

namespace ms::profile {

// Shares are fractions (0.2 is 20 %); nullopt: not checked.
struct Thresholds {
  std::optional<double> max_exposed_comm;    // exposed communication / span, of the worst rank
  std::optional<double> max_exposed_memory;  // exposed copies / span, of the worst rank
  std::optional<double> max_idle;            // idle / span, of the worst rank
  std::optional<double> max_bubble;          // of the pipeline
  std::optional<double> max_slow_rank;       // largest / median computing over ranks
  std::optional<double> min_overlap;         // hidden communication / communication, of the worst rank
  std::optional<double> min_parallel_efficiency;
  std::optional<double> max_step_ms;   // mean of the steps, of the worst rank
  std::optional<double> max_slowdown;  // mean step / mean step of the baseline
};

struct Check {
  std::string what;
  double seen = 0, limit = 0;
  bool holds = false;
  std::string where;  // the worst rank, or "job"
};

// One result per threshold that is set. results: of sections::for_check(). baseline: required by max_slowdown. Throws
// kInvalidArgument for a threshold that the traces cannot answer (a bubble without a pipeline), because a gate that
// checks nothing would always pass.
std::vector<Check> check_thresholds(const Results& results, const Results* baseline, const Thresholds& thresholds);

}  // namespace ms::profile
