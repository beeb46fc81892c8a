// The order in which the stages of a pipeline run forwards and backwards, beyond 1F1B (core/layout/schedule.h).
// Sources: zero bubble, arXiv 2401.10241; DualPipeV, github.com/deepseek-ai/DualPipe and MindSpeed's
// --schedules-method; --delay-wgrad-compute, Megatron's (transformer_config.py), which has it for the pairs of
// --overlap-moe-expert-parallel-comm; nano-pipe, MindSpeed's --use-nanopipe; groups of micro-batches, Megatron's
// --microbatch-group-size-per-virtual-pipeline-stage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/layout/schedule.h"
#include "train/features/feature.h"

namespace ms::train {

struct PipelineScheduleConfig {
  std::string schedules_method;
  bool dualpipev_dw_detach = false;
  bool delay_wgrad_compute = false;
  bool use_nanopipe = false;
  bool use_nanopipe_swap = false;
  std::optional<int64_t> microbatch_group_size_per_virtual_pipeline_stage;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = PipelineScheduleConfig;
    field("schedules_method", &C::schedules_method,
          "Order of the pipeline's work: zb-h1 (gradients of weights apart, in what is idle time in 1F1B), zb-v or "
          "dualpipev (two chunks a stage, in a V). Default: 1F1B, interleaved if stages have several chunks");
    field("dualpipev_dw_detach", &C::dualpipev_dw_detach,
          "With --schedules-method dualpipev: compute gradients of weights apart where stages would be idle");
    field("delay_wgrad_compute", &C::delay_wgrad_compute,
          "With --moe-fb-overlap, or --schedules-method dualpipev and tensor parallelism: of a backward that is "
          "interleaved with a forward, compute the gradients of weights after both, when the gradient of its input "
          "has been sent. For stages that wait for gradients; keeps the operands of one backward until then");
    field(
        "use_nanopipe", &C::use_nanopipe,
        "Interleaved schedule: compute gradients of weights apart, those of stage s 2 s chunks later, in what is idle "
        "time at the end of a step");
    field(
        "use_nanopipe_swap", &C::use_nanopipe_swap,
        "With --use-nanopipe: write the operands of the gradients that wait to the file of --swap-dir, and read them "
        "back a layer ahead of their turn. For stages that hold too much; needs a disk that keeps up with the layers");
    field(
        "microbatch_group_size_per_virtual_pipeline_stage", &C::microbatch_group_size_per_virtual_pipeline_stage,
        "Interleaved schedule: micro-batches that pass a chunk before the next chunk's turn; the last group of a step "
        "may be smaller. No group is below the pipeline's stages, which are the default");
  }
};

layout::ScheduleSettings schedule_settings(const PipelineScheduleConfig& config);
// Whether a forward and the backward behind it are interleaved: DualPipeV, where there are sums of tensor parallelism
// to hide; where tokens travel to experts, if --moe-fb-overlap says so.
bool interleaves_pairs(const TrainerConfig& config);

Feature pipeline_schedule_feature();

}  // namespace ms::train
