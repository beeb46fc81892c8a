// Pipeline schedules as data: the order in which a stage runs the forwards and backwards of its micro-batches, each
// through one of its model chunks. One executor (train/loop/step.h) runs any of them; a new schedule is a new list.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::train {

struct ScheduleAction {
  enum Kind : uint8_t { kForward, kBackward } kind;
  int64_t microbatch;
  int chunk = 0;  // of the stage, 0 .. virtual pipeline size - 1
  bool operator==(const ScheduleAction&) const = default;
};

// 1F1B (PipeDream-flush; megatron/core/pipeline_parallel/schedules.py): min(m, stages - 1 - stage) forwards to warm up,
// then one forward, one backward, then the remaining backwards. One stage: forward and backward in turn.
std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches);

// Interleaved 1F1B (Narayanan et al. 2021; forward_backward_pipelining_with_interleaving of the same file): forwards go
// through chunk 0 for `stages` micro-batches, then through chunk 1 for the same, .., then on to the next micro-batches;
// backwards likewise from the last chunk. min(2 (stages - 1 - stage) + (chunks - 1) stages, m chunks) forwards warm up.
// num_microbatches is a multiple of stages.
std::vector<ScheduleAction> schedule_interleaved(int stage, int stages, int chunks, int64_t num_microbatches);

// Evaluation: the forwards of schedule_interleaved alone (chunks == 1: of 1F1B).
std::vector<ScheduleAction> schedule_forward_only(int stages, int chunks, int64_t num_microbatches);

// Most micro-batches (each counted once a chunk) that are between forward and backward at once: the activations a stage
// must hold.
int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule);

}  // namespace ms::train
