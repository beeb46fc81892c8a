// Compares two runs: what was added, removed, called more often, or takes longer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/analysis/results.h"

namespace ms::profile {

struct DiffRow {
  std::string name;
  int64_t base_count = 0, test_count = 0, base_ns = 0, test_ns = 0;
  int64_t delta_ns() const { return test_ns - base_ns; }
};

struct DiffSide {
  std::vector<DiffRow> rows;                                                    // by |delta| descending, then name
  int64_t added = 0, deleted = 0, increased = 0, decreased = 0, unchanged = 0;  // names, by change of count
  int64_t base_ns = 0, test_ns = 0;
  size_t explaining = 0;  // number of first rows that cover 80 % of the sum of |delta|
};

// Mean step times, and the 95 % interval of their difference (Welch's t), with at least 3 steps on both sides.
struct StepDiff {
  int64_t base_steps = 0, test_steps = 0;
  double base_mean_ns = 0, test_mean_ns = 0;
  std::optional<double> low_ns, high_ns;
};

struct Diff {
  DiffSide device, host_operators;
  StepDiff steps;
  std::vector<DiffRow> communication;  // by type and size: only those whose count differs
};

// Compares sums over all ranks of each side. short_names: without template arguments and parameter lists.
Diff diff_runs(const Store& base, const Store& test, const std::vector<int64_t>& steps, bool short_names);

// "void at::native::add<float>(int)" -> "at::native::add".
std::string short_name(std::string_view name);

}  // namespace ms::profile
