// Maps the layers of a model to the stages of a Megatron checkpoint, for Megatron's pipelines (even, uneven and
// virtual) and for MindSpeed-LLM's --noop-layers and --schedules-method dualpipev.
//
// Names contain the index of a slot in its chunk (core/layout/placement.h). With dualpipev the second chunks run from
// the last stage back to the first, which therefore ends the model too.
// Sources: megatron/core/transformer/transformer_layer.py (get_transformer_layer_offset),
// mindspeed_llm/tasks/checkpoint/convert_hf2mg.py (get_vpprank_hf_layeridxs).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/layout/model_layout.h"
#include "core/layout/placement.h"

namespace ms::convert {

// Pipeline options that only MindSpeed-LLM has.
struct PipelineExtras {
  std::vector<int64_t> noop_layers;  // slots without a layer, counted over all stages, ascending
  bool dualpipev = false;            // two chunks per stage, arranged in a V

  bool any() const { return dualpipev || !noop_layers.empty(); }
  bool operator==(const PipelineExtras&) const = default;
};

class MegatronLayerMap {
 public:
  MegatronLayerMap() = default;
  // layout: stages, chunks per stage, and the number of layers of each if they differ. Throws kInvalidArgument, naming
  // the flags, if layers and no-op layers do not fill such stages.
  MegatronLayerMap(int64_t num_layers, const layout::ModelLayout& layout, const PipelineExtras& extras);

  // The layer in each slot of a chunk; nullopt: a no-op layer.
  std::vector<std::optional<int64_t>> slots(int pp, int chunk) const { return placement_.slots({pp, chunk}); }
  layout::Placement::Slot slot_of(int64_t layer) const { return placement_.slot_of(layer); }
  int64_t num_slots() const { return placement_.num_slots(); }

  static bool is_first_chunk(int pp, int chunk) { return pp == 0 && chunk == 0; }
  bool is_last_chunk(int pp, int chunk) const { return placement_.is_last({pp, chunk}); }
  const PipelineExtras& extras() const { return extras_; }

 private:
  PipelineExtras extras_;
  layout::Placement placement_{1, 1, layout::Placement::Order::kRoundRobin, {0}};
};

}  // namespace ms::convert
