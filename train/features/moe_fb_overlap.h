// Mixtures of experts whose exchanges of one micro-batch are beside what another one computes: a forward and a backward
// that run as one action of the schedule (core/layout/interleave.h).
// Sources: MindSpeed's --moe-fb-overlap (mindspeed/core/pipeline_parallel/fb_overlap); Megatron's
// --overlap-moe-expert-parallel-comm (megatron/core/models/common/model_chunk_schedule_plan.py); DeepSeek-V3, arXiv
// 2412.19437, section 3.2.1.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct MoeFbOverlapConfig {
  bool moe_fb_overlap = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("moe_fb_overlap", &MoeFbOverlapConfig::moe_fb_overlap,
          "With --schedules-method dualpipev, virtual stages or one pipeline stage: compute for one micro-batch while "
          "the tokens of another one are on their way to experts of other ranks, or back. Takes turns after attention, "
          "dispatch, experts and combine of a forward and a backward that are neighbours in the schedule. For experts "
          "on a network");
  }
};

// Whether it is given, and there are exchanges.
bool interleaves_exchanges(const TrainerConfig& config);

Feature moe_fb_overlap_feature();

}  // namespace ms::train
