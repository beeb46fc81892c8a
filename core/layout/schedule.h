// Pipeline schedules as data: the order in which a stage runs the forwards and backwards of its micro-batches, each
// through one of its model chunks. One executor (train/loop/step.h) runs any of them; a new schedule is a new list,
// which schedule_check.h proves.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/layout/placement.h"

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

// The place whose result an action of `stage` reads, and the one that reads its result: hidden states of a forward, the
// gradient of the input of a backward. nullopt: none.
std::optional<Place> source_of(const Placement& placement, int stage, const ScheduleAction& action);
std::optional<Place> target_of(const Placement& placement, int stage, const ScheduleAction& action);

// How the stages of a pipeline take turns (--schedules-method).
enum class ScheduleMethod : uint8_t {
  k1F1B,             // interleaved, if a stage has several chunks
  kNanoPipe,         // interleaved, gradients of weights apart (--use-nanopipe)
  kZbH1,             // zero bubble with the memory of 1F1B
  kZbV,              // zero bubble, two chunks a stage in a V
  kDualPipeV,        // two chunks a stage in a V
  kDualPipeVDetach,  // the same with detached weight gradients (--dualpipev-dw-detach)
};
// Whether the chunks run through the stages in a V.
constexpr bool runs_in_a_v(ScheduleMethod method) { return method >= ScheduleMethod::kZbV; }
constexpr Placement::Order chunk_order(ScheduleMethod method) {
  return runs_in_a_v(method) ? Placement::Order::kV : Placement::Order::kRoundRobin;
}
// Micro-batches that a schedule needs at least.
int64_t least_microbatches(ScheduleMethod method, int stages);

// When dropped layers of an interleaved schedule are run again (MindSpeed's recompute independent pipelining).
enum class RecomputeTime : uint8_t {
  kAtBackward,  // within the backward that needs them; there is no action of its own
  kInAdvance,   // before the backward waits for its gradient; never in the last place, whose gradient is there
  kInBubble,    // the same, of the chunks that would be more than stages x chunks at once; the others are kept
};

struct ScheduleSettings {
  ScheduleMethod method = ScheduleMethod::k1F1B;
  // Of an interleaved schedule: micro-batches that pass a chunk before the next chunk's turn; 0: as many as stages
  // (--microbatch-group-size-per-virtual-pipeline-stage).
  int64_t microbatch_group_size = 0;
  RecomputeTime recompute = RecomputeTime::kAtBackward;
  int recomputed_chunks = INT_MAX;  // of a stage, the first: only these have layers that kInAdvance drops
  // DualPipeV, or an interleaved schedule or one of one stage, which then have one more forward to warm up: a forward
  // and the backward behind it run as one action (begins_pair), sub-step by sub-step in turn (interleave.h).
  bool pairs = false;
  // The gradients of weights of such a backward come behind the pair, as an action of their own
  // (--delay-wgrad-compute).
  bool delays_weights_of_pairs = false;
};

// 1F1B (PipeDream-flush; megatron/core/pipeline_parallel/schedules.py): min(m, stages - 1 - stage) forwards to warm up,
// then one forward, one backward, then the remaining backwards. One stage: forward and backward in turn.
std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches);

// Interleaved 1F1B (Narayanan et al. 2021; forward_backward_pipelining_with_interleaving of the same file): forwards go
// through chunk 0 for `group` micro-batches, then through chunk 1 for the same, .., then on to the next micro-batches;
// backwards likewise from the last chunk. min(2 (stages - 1 - stage) + (chunks - 1) group, m chunks) forwards warm up.
// group: at least `stages`, as is the last group, which may be smaller. in_pairs: one more forward warms up, so that a
// backward needs nothing of the forward in front of it (schedules.py, get_pp_rank_microbatches, with
// overlap_moe_expert_parallel_comm).
std::vector<ScheduleAction> schedule_interleaved(int stage, int stages, int chunks, int64_t num_microbatches,
                                                 int64_t group, bool in_pairs = false);

// Nano-pipe (MindSpeed's --use-nanopipe): the interleaved schedule whose backward is split; stage s computes the
// weights' gradients 2 s chunk-backwards after those of the input, so that they fill idle time at the end. (MindSpeed
// computes the gradients of the first 2 s at the end; here they stay in the order of the micro-batches, and no bit
// changes.)
std::vector<ScheduleAction> schedule_nanopipe(int stage, int stages, int chunks, int64_t num_microbatches,
                                              int64_t group);

// ZB-H1 (Qi et al. 2024, arXiv 2401.10241, section 3.1): 1F1B whose backward is split; stage s computes the weights'
// gradients s micro-batches after those of the input, so that each stage holds `stages` micro-batches, and the rest of
// them fills what is idle time in 1F1B: (stages - 1) (forward + backward_input - backward_weight) remain.
std::vector<ScheduleAction> schedule_zb_h1(int stage, int stages, int64_t num_microbatches);

// ZB-V (the same, section 6): two chunks a stage, placed in a V. If forward, backward_input and backward_weight take
// the same time, a stage is idle only before its first action and after its last one, with the memory of 1F1B.
std::vector<ScheduleAction> schedule_zb_v(int stage, int stages, int64_t num_microbatches);

// DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe): the "cut in half" form of DualPipe, two chunks a stage
// in a V. A forward of one chunk and a backward of the other are neighbours in the list: pairs, whose communication an
// executor can hide. detach: backwards at the ends are split, and their weights' gradients fill idle time.
// num_microbatches is at least 2 stages.
std::vector<ScheduleAction> schedule_dualpipe_v(int stage, int stages, int64_t num_microbatches, bool detach);

// What a stage runs in training. chunks: 2 of a schedule in a V, 1 of ZB-H1.
std::vector<ScheduleAction> schedule_training(const ScheduleSettings& settings, int stage, int stages, int chunks,
                                              int64_t num_microbatches);

// Whether the layers of a micro-batch and chunk, which the recompute plan drops, are dropped, at microbatch x chunks +
// chunk: where they are run again at the backward all, else those with an action for it.
std::vector<bool> dropped_chunks(const ScheduleSettings& settings, const std::vector<ScheduleAction>& actions,
                                 int chunks, int64_t num_microbatches);

// Whether the i-th action is a forward, and the one behind it a backward that needs nothing of it: a pair, where the
// settings have it. In a V: of another chunk; else as schedule_interleaved has them in pairs, of which there are two at
// least. Both inputs are there before it begins.
bool begins_pair(Placement::Order order, std::span<const ScheduleAction> actions, size_t i);

// Evaluation: the forwards of schedule_interleaved in groups of `stages`, of any number of micro-batches and in a V
// too.
std::vector<ScheduleAction> schedule_forward_only(int stages, int chunks, int64_t num_microbatches);

// Most micro-batches (each counted once a chunk) that are between forward and the end of backward at once: the
// activations a stage must hold. peak_kept leaves out those that are dropped, until they are run again.
int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule);
int64_t peak_kept(const std::vector<ScheduleAction>& schedule);

}  // namespace ms::layout
