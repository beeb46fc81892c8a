// The sub-steps of a layer: what an executor can interleave with those of another micro-batch, so that one computes
// while the other communicates (megatron/core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan;
// interleave.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/layout/placement.h"
#include "core/transformer_config.h"

namespace ms::layout {

enum class SubStep : uint8_t {
  kAttention,        // norm, attention
  kAttentionReduce,  // with TP: the sum of what it gives; in backward, of the gradient of what it reads
  kDispatch,         // with experts on several ranks: norm and router, whose tokens go to those of their experts
  kExperts,          // experts; on one rank norm and router, too
  kCombine,          // with experts on several ranks: the way back
  kMlp,              // norm and MLP of a dense layer
  kMlpReduce,        // with TP: as kAttentionReduce
  kResult,           // of a chunk, not of a layer: what it hands on; with the loss, or the gradient of the embedding
};
std::string_view sub_step_name(SubStep step);  // "attention", ..
// Whether the sub-step is communication; the others compute.
bool communicates(SubStep step);

// Of a layer's forward and of its backward, in order. tp: ranks that share the layer; ep: ranks that together have its
// experts, ep x etp.
std::vector<SubStep> sub_steps(const core::TransformerConfig& model, int64_t layer, int tp, int ep = 1);
std::vector<SubStep> backward_sub_steps(const core::TransformerConfig& model, int64_t layer, int tp, int ep = 1);

// A sub-step of a micro-batch on its way through a chunk.
struct ChunkStep {
  SubStep step;
  int64_t layer;  // within the chunk; of kResult: the number of its layers
  bool operator==(const ChunkStep&) const = default;
};
// Of all layers, and the result.
std::vector<ChunkStep> chunk_steps(const core::TransformerConfig& model, LayerRange layers, int tp, int ep = 1);
std::vector<ChunkStep> backward_chunk_steps(const core::TransformerConfig& model, LayerRange layers, int tp,
                                            int ep = 1);

}  // namespace ms::layout
