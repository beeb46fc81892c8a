// Where the layers of a model stand in the stages of a Megatron checkpoint: Megatron's pipelines, even, uneven and
// virtual, and MindSpeed-LLM's --noop-layers and --schedules-method dualpipev.
//
// A stage has chunks, and a chunk slots; in the names of a slot is its index within the chunk. It holds a layer, or
// nothing: a no-op layer. Slots are counted as a token meets them, chunk after chunk: those of stages 0, 1, .. and then
// their second ones, in a V from the last stage back, so that the first one ends the model too.
// Sources: megatron/core/transformer/transformer_layer.py (get_transformer_layer_offset),
// mindspeed_llm/tasks/checkpoint/convert_hf2mg.py (get_vpprank_hf_layeridxs).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/layout.h"

namespace ms::convert {

// What MindSpeed-LLM's pipelines have of their own.
struct PipelineExtras {
  std::vector<int64_t> noop_layers;  // slots without a layer, counted over all stages, ascending
  bool dualpipev = false;            // two chunks a stage, in a V

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
  // layout: stages, chunks of each, and how many layers those have, where they are uneven. Throws kInvalidArgument,
  // naming the flags, if the layers and no-op layers do not go into such stages.
  MegatronLayerMap(int64_t num_layers, const ckpt::ModelLayout& layout, const PipelineExtras& extras);

  // Of each slot of a chunk its layer, or kNoLayer.
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
  std::vector<Place> places_;  // of layers
};

}  // namespace ms::convert
