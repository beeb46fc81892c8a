// What the layers of a chunk recompute, by the layer's number in its chunk, whatever their count: as the flags have it,
// for every micro-batch. SlotPolicy (slot_policy.h) makes of it what becomes of each tensor of a micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/placement.h"
#include "core/layout/saved_slots.h"

namespace ms::layout {

// What is recomputed of a layer that --recompute-module-list counts; the numbers are MindSpeed's --recompute-type,
// whose 1, attention alone, does not exist here.
enum class RecomputedModule : uint8_t { kMlp = 0, kLayer = 2 };

// As the flags of train/config.h have it.
struct RecomputeSettings {
  std::string granularity;  // "": nothing is recomputed whole; "full"; "selective": only modules
  // Of "full": "block": the first num_layers layers; "uniform": all, in groups of num_layers; "chunk": all, each by
  // itself, of the micro-batches that the schedule says (schedule.h, kInBubble).
  std::string method;
  int64_t num_layers = 0;
  bool norm_module = false, mlp_module = false;  // --recompute-modules layernorm, mlp: in every layer
  // The same of moe (and --moe-layer-recompute), moe_act and shared_experts.
  bool moe_module = false, moe_act_module = false, shared_experts_module = false;
  bool latent_module = false;  // --recompute-mla-up-proj: in layers that are not recomputed whole
  // --moe-zero-memory: 0, level 0: what experts read and their activation; 1, level 1: linear_fc1, too, in the first so
  // many layers, and the activation in the others. -1: nothing.
  int zero_memory_level = -1;
  int64_t zero_memory_num_layers = 0;
  int64_t mlp_num_layers = 0;  // the MLP in the first so many layers
  // --recompute-norm, --recompute-activation-function: in the first so many layers behind those of "block"; 0: all.
  bool norm = false, activation = false;
  int64_t norm_num_layers = 0, activation_num_layers = 0;
  // Chunks of a stage that these numbers of layers are of together, the layers of all chunks counted in turn
  // (--enable-recompute-layers-per-pp-rank); 1: they are of each chunk.
  int chunks = 1;
  // Of each stage, whose layers are one chunk: how many of its first layers are recomputed (--recompute-module-list),
  // in place of granularity "full". Empty: not given.
  std::vector<int64_t> module_list;
  RecomputedModule module = RecomputedModule::kLayer;
};

class RecomputePlan {
 public:
  RecomputePlan() = default;  // keeps all
  explicit RecomputePlan(RecomputeSettings settings);
  RecomputePlan of_place(Place place) const;
  // This plan, with another module_list.
  RecomputePlan with_module_list(std::vector<int64_t> list, RecomputedModule module) const;

  // Whether the layer drops all but its input, or in a group all.
  bool recomputes(int64_t layer) const { return layer < first_kept_; }
  // First of the layers that must be run again, up to `layer`, before the backward of `layer`.
  int64_t group_begin(int64_t layer) const { return layer / group_ * group_; }
  // What its modules drop as soon as the product behind it has read it, and recompute for that product's weight
  // gradient from what they keep anyway: one pass over memory for each, or for the MLP as a whole one product of three.
  // Layers that "block" recomputes whole recompute nothing apart.
  RecomputedParts recomputed_parts(int64_t layer) const;
  bool has_latent_module() const { return settings_.latent_module; }

 private:
  RecomputePlan of_stage(int stage) const;  // as module_list says

  RecomputeSettings settings_;
  int64_t first_kept_ = 0;
  int64_t group_ = 1;
};

}  // namespace ms::layout
