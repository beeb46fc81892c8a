#include "train/features/registry.h"

#include "train/features/async_log_allreduce.h"
#include "train/features/async_save.h"
#include "train/features/attention_mask_grid.h"
#include "train/features/attention_window.h"
#include "train/features/automated_pipeline.h"
#include "train/features/ckpt_compress.h"
#include "train/features/ckpt_fully_parallel_save.h"
#include "train/features/ckpt_gather.h"
#include "train/features/ckpt_writer.h"
#include "train/features/comm_progress.h"
#include "train/features/context_parallel.h"
#include "train/features/ddp_average.h"
#include "train/features/defer_embedding_wgrad.h"
#include "train/features/deterministic.h"
#include "train/features/distributed_optimizer.h"
#include "train/features/expert_parallel.h"
#include "train/features/expert_placement.h"
#include "train/features/flight_recorder.h"
#include "train/features/freeze_parameters.h"
#include "train/features/fused_operators.h"
#include "train/features/grad_reduce_in_bf16.h"
#include "train/features/gradient_accumulation_fusion.h"
#include "train/features/gradient_accumulation_steps.h"
#include "train/features/hybrid_context_parallel.h"
#include "train/features/incremental_save.h"
#include "train/features/layerzero.h"
#include "train/features/local_checkpoints.h"
#include "train/features/loss_chunks.h"
#include "train/features/megatron_fsdp.h"
#include "train/features/mixed_precision.h"
#include "train/features/mixture_of_experts.h"
#include "train/features/moe_fb_overlap.h"
#include "train/features/multi_latent_attention.h"
#include "train/features/multi_token_prediction.h"
#include "train/features/optimization_level.h"
#include "train/features/optimizer_instances.h"
#include "train/features/overlap_grad_reduce.h"
#include "train/features/overlap_param_gather.h"
#include "train/features/packed_documents.h"
#include "train/features/packed_weights.h"
#include "train/features/parallel_mode.h"
#include "train/features/parallel_optimizer.h"
#include "train/features/pipeline_parallel.h"
#include "train/features/pipeline_schedule.h"
#include "train/features/prefix_mask.h"
#include "train/features/profile.h"
#include "train/features/rank_order.h"
#include "train/features/recompute.h"
#include "train/features/recompute_activation_function.h"
#include "train/features/recompute_norm.h"
#include "train/features/recompute_pipelining.h"
#include "train/features/replication.h"
#include "train/features/reuse_fp32_param.h"
#include "train/features/routing_trace.h"
#include "train/features/save_tensors.h"
#include "train/features/sequence_parallel.h"
#include "train/features/shared_memory.h"
#include "train/features/spike_skip.h"
#include "train/features/stage_layers.h"
#include "train/features/straggler.h"
#include "train/features/swap_attention.h"
#include "train/features/swap_optimizer.h"
#include "train/features/tensor_parallel.h"
#include "train/features/tp_overlap.h"
#include "train/features/variable_seq_lengths.h"
#include "train/features/virtual_pipeline.h"
#include "train/features/weight_hash.h"

namespace ms::train {

const std::vector<Feature>& features() {
  static const std::vector<Feature> all = {
      tensor_parallel_feature(),
      sequence_parallel_feature(),
      tp_comm_overlap_feature(),
      ascend_coc_feature(),
      ascend_mc2_feature(),
      context_parallel_feature(),
      hybrid_context_parallel_feature(),
      variable_seq_lengths_feature(),
      pipeline_parallel_feature(),
      virtual_pipeline_feature(),
      pipeline_schedule_feature(),
      automated_pipeline_feature(),
      stage_layers_feature(),
      defer_embedding_wgrad_feature(),
      parallel_optimizer_feature(),
      layerzero_feature(),
      distributed_optimizer_feature(),
      megatron_fsdp_feature(),
      optimizer_instances_feature(),
      overlap_grad_reduce_feature(),
      overlap_param_gather_feature(),
      grad_reduce_in_bf16_feature(),
      ddp_average_feature(),
      async_log_allreduce_feature(),
      shared_memory_feature(),
      comm_progress_feature(),
      rank_order_feature(),
      parallel_mode_feature(),
      mixture_of_experts_feature(),
      expert_parallel_feature(),
      moe_fb_overlap_feature(),
      expert_placement_feature(),
      multi_latent_attention_feature(),
      multi_token_prediction_feature(),
      mixed_precision_feature(),
      reuse_fp32_param_feature(),
      freeze_parameters_feature(),
      recompute_feature(),
      recompute_norm_feature(),
      recompute_activation_function_feature(),
      recompute_pipelining_feature(),
      attention_window_feature(),
      packed_documents_feature(),
      prefix_mask_feature(),
      attention_mask_grid_feature(),
      swap_attention_feature(),
      swap_optimizer_feature(),
      loss_chunks_feature(),
      deterministic_feature(),
      packed_weights_feature(),
      gradient_accumulation_fusion_feature(),
      gradient_accumulation_steps_feature(),
      fused_operators_feature(),
      optimization_level_feature(),
      spike_skip_feature(),
      async_save_feature(),
      ckpt_writer_feature(),
      ckpt_gather_feature(),
      ckpt_fully_parallel_save_feature(),
      ckpt_compress_feature(),
      incremental_save_feature(),
      local_checkpoints_feature(),
      replication_feature(),
      profile_feature(),
      save_tensors_feature(),
      routing_trace_feature(),
      flight_recorder_feature(),
      straggler_feature(),
      weight_hash_feature(),
  };
  return all;
}

}  // namespace ms::train
