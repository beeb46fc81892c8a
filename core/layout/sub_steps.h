// The sub-steps of a layer: what an executor can interleave with those of another micro-batch, so that one computes
// while tokens of the other travel (megatron/core/models/common/model_chunk_schedule_plan.py,
// TransformerLayerSchedulePlan).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/transformer_config.h"

namespace ms::layout {

enum class SubStep : uint8_t {
  kAttention,  // norm, attention, router
  kDispatch,   // tokens to the ranks of their experts
  kExperts,
  kCombine,  // and back
  kMlp,      // norm and MLP of a dense layer
};
std::string_view sub_step_name(SubStep step);  // "attention", ..
// Whether the sub-step is communication; the others compute.
bool communicates(SubStep step);

// Of a layer's forward, in order. Its backward runs them in reverse.
std::vector<SubStep> sub_steps(const core::TransformerConfig& model, int64_t layer);

}  // namespace ms::layout
