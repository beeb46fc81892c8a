// Proves a pipeline schedule before it runs, and predicts how long its stages are idle.
//
// The rules are those of the executor (train/loop/step.h): sends do not block; the receives of a stage are in the order
// of its actions; the messages of one direction (hidden states, gradients) between two stages arrive in the order in
// which they were sent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/layout/placement.h"
#include "core/layout/schedule.h"

namespace ms::layout {

struct PipelineSchedule {
  Placement placement;
  int64_t num_microbatches;
  bool forward_only = false;                         // evaluation
  std::vector<std::vector<ScheduleAction>> actions;  // of each stage
};

// Time of one action, in any unit; messages take none.
struct ActionTimes {
  double forward = 1, backward = 2, backward_input = 1, backward_weight = 1, recompute = 1;
  // Of a pair (begins_pair) that runs as one, with the whole backward or its first part: both begin when both inputs
  // are there, and both results are sent at the end (DeepSeek's F&B). 0: one after the other. Of the forward's place.
  double forward_and_backward = 0, forward_and_backward_input = 0;
  double of(ScheduleAction::Kind kind) const;
};

struct ScheduleReport {
  // Empty if the schedule runs to its end and computes what 1F1B computes, otherwise the first fault, with stage and
  // number of the action (from 0). Faults: an action outside the schedule, repeated or missing; a backward before its
  // forward; weight gradients not added in the order of the micro-batches; a stage that receives another message than
  // it expects; a deadlock.
  std::string fault;
  std::vector<std::vector<double>> starts;  // of each stage: when each action begins
  double makespan = 0;                      // until the last stage is done
  std::vector<double> idle;                 // of each stage: makespan without its own actions
  std::vector<int64_t> in_flight;           // of each stage: peak_in_flight
};
ScheduleReport check_schedule(const PipelineSchedule& schedule, const ActionTimes& times = {});
// The same where places differ. times: of every place, at stage x chunks + chunk.
ScheduleReport check_schedule(const PipelineSchedule& schedule, std::span<const ActionTimes> times);

}  // namespace ms::layout
