// A forward of one micro-batch and a backward of another that run as one action of a schedule, sub-step by sub-step, so
// that the communication of each is hidden behind what the other computes (DeepSeek's F&B; Megatron's
// TransformerModelChunkSchedulePlan.run).
//
// The rules are those of the executor (train/loop/step.h): a sub-step that communicates is posted, and finished when
// the next sub-step of its own micro-batch begins. Nothing else waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/layout/schedule.h"
#include "core/layout/sub_steps.h"

namespace ms::layout {

struct PairStep {
  bool is_forward;
  ChunkStep of_chunk;
  bool operator==(const PairStep&) const = default;
};

// Posts communication as early as possible, and computes for the micro-batch that does not wait for its own. Where both
// can, it takes the one with more computation left; of equals the backward, which the stage before waits for.
std::vector<PairStep> interleave(std::span<const ChunkStep> forward, std::span<const ChunkStep> backward);

// Empty if `order` keeps the rules, otherwise the first fault. Faults: a sub-step that is repeated, missing, or before
// another of its micro-batch that comes first; a micro-batch that goes on and waits for its communication although the
// other could have computed in the meantime.
std::string check_interleaved(std::span<const ChunkStep> forward, std::span<const ChunkStep> backward,
                              std::span<const PairStep> order);

// What a pair of a forward through one chunk of a stage and a backward through another one runs, in order.
std::vector<PairStep> pair_steps(const core::TransformerConfig& model, const Placement& placement, int tp,
                                 Place forward, Place backward, int ep = 1);

}  // namespace ms::layout
