// Pipeline schedules as data: the order in which a stage runs the forwards and backwards of its micro-batches. An
// executor (train/loop/step.h) runs any of them; a new schedule is a new list.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::train {

struct ScheduleAction {
  enum Kind : uint8_t { kForward, kBackward } kind;
  int64_t microbatch;
  bool operator==(const ScheduleAction&) const = default;
};

// 1F1B (PipeDream-flush; megatron/core/pipeline_parallel/schedules.py): min(m, stages - 1 - stage) forwards to warm up,
// then one forward, one backward, then the remaining backwards. One stage: forward and backward in turn.
std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches);

// Evaluation: forwards only.
std::vector<ScheduleAction> schedule_forward_only(int64_t num_microbatches);

// Most micro-batches that are between forward and backward at once: the activations a stage must hold.
int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule);

}  // namespace ms::train
