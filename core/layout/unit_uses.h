// How often a training step uses each unit of parameters (buffer_cut.h) on a stage: what ZeRO-2 and ZeRO-3 communicate
// follows from it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/layout/training_step.h"

namespace ms::layout {

struct UnitUses {
  // Actions that add to gradients of the unit, after each of which they are reduced: a backward of a micro-batch or
  // each of its parts, and what comes behind the last of them.
  int64_t reductions = 0;
  // Actions, or layers that one runs again, which read its weights: before each of them these are gathered (ZeRO-3).
  int64_t gathers = 0;
};

// By unit, those of the stage that train.
std::map<int64_t, UnitUses> unit_uses(const TrainingStep& step, int stage);

// How often each of the stage's buckets is reduced in a step: up to ZeRO-1 once; and its weights are gathered: with
// ZeRO-1 and ZeRO-2 once, behind the update.
std::vector<UnitUses> uses_of_buckets(const TrainingStep& step, const StageParameters& parameters, int stage);

}  // namespace ms::layout
