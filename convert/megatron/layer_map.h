// Maps the layers of a model to the stages of a Megatron checkpoint, for Megatron's pipelines (even, uneven and
// virtual) and for MindSpeed-LLM's --noop-layers and --schedules-method dualpipev.
//
// A stage has chunks, and a chunk has slots; names contain the index of a slot in its chunk. A slot holds a layer, or
// nothing (a no-op layer). Slots are counted in the order in which a token passes them: the first chunks of stages 0,
// 1, .., then their second chunks. With dualpipev the second chunks run from the last stage back to the first, which
// therefore ends the model too.
// Sources: megatron/core/transformer/transformer_layer.py (get_transformer_layer_offset),
// mindspeed_llm/tasks/checkpoint/convert_hf2mg.py (get_vpprank_hf_layeridxs).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/model_layout.h"

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
  static constexpr int64_t kNoLayer = -1;
  struct Place {
    int pp = 0, chunk = 0;
    int64_t slot = 0;
  };

  MegatronLayerMap() = default;
  // layout: stages, chunks per stage, and the number of layers of each if they differ. Throws kInvalidArgument, naming
  // the flags, if layers and no-op layers do not fill such stages.
  MegatronLayerMap(int64_t num_layers, const layout::ModelLayout& layout, const PipelineExtras& extras);

  // Returns the layer in each slot of a chunk, or kNoLayer.
  std::span<const int64_t> slots(int pp, int chunk) const { return chunks_[index_of(pp, chunk)]; }
  const Place& place_of(int64_t layer) const { return places_.at(static_cast<size_t>(layer)); }
  int64_t num_slots() const;

  static bool is_first_chunk(int pp, int chunk) { return pp == 0 && chunk == 0; }
  bool is_last_chunk(int pp, int chunk) const { return chunk == vpp_ - 1 && pp == (extras_.dualpipev ? 0 : pp_ - 1); }
  const PipelineExtras& extras() const { return extras_; }

 private:
  size_t index_of(int pp, int chunk) const {
    return static_cast<size_t>(chunk) * static_cast<size_t>(pp_) + static_cast<size_t>(pp);
  }

  int pp_ = 1, vpp_ = 1;
  PipelineExtras extras_;
  std::vector<std::vector<int64_t>> chunks_;
  std::vector<Place> places_;  // one per layer
};

}  // namespace ms::convert
