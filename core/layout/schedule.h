// Pipeline schedules as data: the order in which a stage runs the forwards and backwards of its micro-batches, each
// through one of its model chunks. One executor (train/loop/step.h) runs any of them; a new schedule is a new list,
// which schedule_check.h proves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ms::layout {

struct ScheduleAction {
  // A backward is one action, or two: kBackwardInput computes the gradient of the chunk's input, which the stage before
  // waits for, kBackwardWeight those of its weights (zero bubble, Qi et al. 2024). kRecompute runs a dropped forward
  // again, before the backward needs it.
  enum Kind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight, kRecompute } kind;
  int64_t microbatch;
  int chunk = 0;  // of the stage, 0 .. chunks - 1
  bool operator==(const ScheduleAction&) const = default;
};
std::string_view action_name(ScheduleAction::Kind kind);  // "forward", ..

// 1F1B (PipeDream-flush; megatron/core/pipeline_parallel/schedules.py): min(m, stages - 1 - stage) forwards to warm up,
// then one forward, one backward, then the remaining backwards. One stage: forward and backward in turn.
std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches);

// Interleaved 1F1B (Narayanan et al. 2021; forward_backward_pipelining_with_interleaving of the same file): forwards go
// through chunk 0 for `stages` micro-batches, then through chunk 1 for the same, .., then on to the next micro-batches;
// backwards likewise from the last chunk. min(2 (stages - 1 - stage) + (chunks - 1) stages, m chunks) forwards warm up.
// num_microbatches is a multiple of stages.
std::vector<ScheduleAction> schedule_interleaved(int stage, int stages, int chunks, int64_t num_microbatches);

// What a stage runs in training: 1F1B, interleaved if it has several chunks.
std::vector<ScheduleAction> schedule_training(int stage, int stages, int chunks, int64_t num_microbatches);

// Evaluation: the forwards of schedule_interleaved alone (chunks == 1: of 1F1B).
std::vector<ScheduleAction> schedule_forward_only(int stages, int chunks, int64_t num_microbatches);

// Most micro-batches (each counted once a chunk) that are between forward and the end of backward at once: the
// activations a stage must hold.
int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule);

}  // namespace ms::layout
