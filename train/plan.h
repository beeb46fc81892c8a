// What a run will do, computed from its configuration without running it: who is in which group, what each stage holds,
// in which order it works, how much it computes and sends. `mstrain --print-plan` prints it; tests/train/plan_test.cpp
// compares it with what ranks count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "core/layout/formulas/communication.h"
#include "core/layout/formulas/memory.h"
#include "core/layout/schedule_check.h"
#include "core/layout/training_step.h"
#include "train/features/active_features.h"

namespace ms::train {

// All ranks of a stage hold and do the same, each its own part of it.
struct StagePlan {
  std::vector<layout::LayerRange> layers;  // of each chunk
  int64_t parameters = 0;                  // of one rank, without padding
  layout::StepMemory memory;               // of one rank
  int64_t executed_flops = 0;              // of one rank, in a step
  std::vector<layout::Traffic> traffic;    // of one rank, in a step
};

class RunPlan {
 public:
  // Throws kInvalidArgument for a step of more actions than can be listed. step: valid for its layout. features: of the
  // run. assumptions: sentences, of what the caller had to assume. ranks_per_node: 0: nothing is said of nodes.
  // grid_file: from which the step's grid was read, if it has one.
  RunPlan(layout::TrainingStep step, std::vector<ActiveFeature> features, std::vector<std::string> assumptions,
          int ranks_per_node = 0, std::string grid_file = "");

  const std::vector<StagePlan>& stages() const { return stages_; }
  nlohmann::json json() const;
  std::string text() const;

 private:
  bool has_feature(std::string_view name) const;
  std::string schedule_legend() const;
  std::string schedule_text() const;
  std::string label(const layout::ScheduleAction& action) const;
  size_t unit_width() const;   // characters in which every label fits, within a bound
  double units_shown() const;  // of the makespan
  double time_of(size_t stage, const layout::ScheduleAction& action) const;

  layout::TrainingStep step_;
  std::vector<ActiveFeature> features_;
  std::vector<std::string> assumptions_;
  int ranks_per_node_;
  std::string grid_file_;
  std::vector<StagePlan> stages_;
  layout::PipelineSchedule schedule_;
  std::vector<layout::ActionTimes> times_;  // of each place
  bool recomputes_within_ = false;          // some backward
  bool has_own_times_ = false;              // places have, by their FLOPs
  layout::ScheduleReport report_;
};

}  // namespace ms::train
