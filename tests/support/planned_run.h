// A run on thread ranks compared with its plan, for tests of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/support/tiny_run.h"

namespace ms::test {

// Operations and bytes by group, FLOPs, and memory that lasts: exactly those of the plan, on every rank. Activations
// and communication buffers: to a tenth; exact: activations to the byte.
void expect_plan_equals_run(train::TrainerConfig config, int ranks, bool exact = false);

struct PlanMode {
  const char* name;
  void (*set)(train::TrainerConfig&);
};
// Ways to keep, drop or swap what layers save.
inline constexpr int kNumPlanModes = 6;
extern const PlanMode kPlanModes[kNumPlanModes];
inline constexpr int kPlanBlock = 1, kPlanUniform = 2;  // numbers of these modes

// Whether a case of a table runs: a third of the diagonals by default, so that each row and each column does; all of
// them in nightly runs. diagonal: the sum of the case's row and column.
bool plan_is_due(std::ptrdiff_t diagonal);

// Which cases of a table run: all, or those that plan_is_due() says.
enum class PlanTable : uint8_t { kWhole, kDiagonals };
// Runs of 16 samples a step with each layout and each change of it. model: set before the change. exact: as above, but
// for cases with frozen parameters.
void expect_plans_equal_runs(std::span<const TinyLayout> layouts, std::span<const PlanMode> changes, PlanTable table,
                             void (*model)(train::TrainerConfig&), bool exact = false);

// Everything that can leave memory does.
void swap_all(train::TrainerConfig& config);

}  // namespace ms::test
