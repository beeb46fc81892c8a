// The interleaved schedule: each stage holds several chunks of layers.
// Source: arXiv 2104.04473, section 2.2; forward_backward_pipelining_with_interleaving in
// megatron/core/pipeline_parallel/schedules.py.
#pragma once

#include <cstdint>
#include <optional>

#include "train/features/feature.h"

namespace ms::train {

struct VirtualPipelineConfig {
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  bool overlap_p2p_communication = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = VirtualPipelineConfig;
    field("num_layers_per_virtual_pipeline_stage", &C::num_layers_per_virtual_pipeline_stage,
          "Interleaved schedule: layers per chunk, of which each stage holds several; makes pipeline bubbles "
          "shorter. Default: not interleaved");
    field("num_virtual_stages_per_pipeline_rank", &C::num_virtual_stages_per_pipeline_rank,
          "Interleaved schedule: chunks per stage, instead of layers per chunk. Default: not interleaved");
    field("overlap_p2p_communication", &C::overlap_p2p_communication,
          "Interleaved schedule: post the receive of the next chunk before computing this one; costs the memory of "
          "one hidden state");
  }
};

// Whether stages have several chunks that take turns, and not two in a V.
bool is_interleaved(const TrainerConfig& config);

Feature virtual_pipeline_feature();

}  // namespace ms::train
