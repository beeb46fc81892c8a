// The makespan of one schedule for many sets of times. What waits for what is found once, so that a search over the
// layers of stages (pipeline_search.h) can ask a million times; check_schedule proves the schedule and says more.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/schedule_check.h"

namespace ms::layout {

class ScheduleTimer {
 public:
  // Throws kInternal if check_schedule finds a fault.
  explicit ScheduleTimer(const PipelineSchedule& schedule);

  // times: of every place, at stage x chunks + chunk; without forward_and_backward. As check_schedule's makespan, to
  // the bit. O(actions).
  double makespan(std::span<const ActionTimes> times);

 private:
  struct Node {  // an action
    int32_t place = 0;
    ScheduleAction::Kind kind = ScheduleAction::kForward;
    int32_t before = -1;  // node of the action before it on its stage; -1: none
    int32_t source = -1;  // node whose result it reads, of another stage
  };
  std::vector<Node> nodes_;   // each behind those that it waits for
  std::vector<double> ends_;  // of the nodes
};

}  // namespace ms::layout
