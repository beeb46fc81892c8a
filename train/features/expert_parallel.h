// Expert parallelism: the experts of a layer are on several ranks, and tokens travel to the ranks of their experts.
// Sources: megatron/core/parallel_state.py (expert groups), megatron/core/transformer/moe/token_dispatcher.py; GShard
// (arXiv 2006.16668); MindSpeed 2.0.0 (hierarchical-alltoallv).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/layout/expert_overlap.h"
#include "core/layout/rank_grid.h"
#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;

struct ExpertParallelConfig {
  int expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;
  std::string moe_token_dispatcher_type = "alltoall";
  bool moe_tp_extend_ep = false;
  bool moe_alltoall_overlap_comm = false;
  bool moe_allgather_overlap_comm = false;
  bool moe_shared_expert_overlap = false;
  bool moe_hierarchical_alltoallv = false;
  int64_t moe_experts_pipeline_degree = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ExpertParallelConfig;
    field("expert_model_parallel_size", &C::expert_model_parallel_size,
          "Ranks that the experts of a layer are distributed over (EP). EP x ETP (--expert-tensor-parallel-size) must "
          "divide TP x CP x DP");
    field("expert_tensor_parallel_size", &C::expert_tensor_parallel_size,
          "Ranks that share each expert (ETP); 1 leaves experts whole where TP divides the rest of a layer. Default: "
          "--tensor-model-parallel-size");
    field("moe_token_dispatcher_type", &C::moe_token_dispatcher_type,
          "How tokens reach the ranks of their experts: alltoall (each to those ranks alone), or allgather (all to all "
          "ranks, less traffic where a token has more experts than there are ranks). alltoall_seq, MindSpeed's name, "
          "is alltoall");
    field("moe_tp_extend_ep", &C::moe_tp_extend_ep,
          "Leave experts whole, and distribute them over the tensor-parallel ranks, too: EP is TP times "
          "--expert-model-parallel-size, and ETP is 1");
    field("moe_alltoall_overlap_comm", &C::moe_alltoall_overlap_comm,
          "With the alltoall dispatcher: compute shared experts and the gradients of experts' weights while tokens, or "
          "their gradients, are on their way");
    field("moe_allgather_overlap_comm", &C::moe_allgather_overlap_comm,
          "With the allgather dispatcher: as --moe-alltoall-overlap-comm");
    field("moe_shared_expert_overlap", &C::moe_shared_expert_overlap,
          "Compute shared experts while tokens, or their gradients, are on their way");
    field("moe_hierarchical_alltoallv", &C::moe_hierarchical_alltoallv,
          "With --moe-tp-extend-ep: the experts of TP ranks are a block; each token goes once to each block, not once "
          "for each of its experts there, and then within the block, which should be on one node, to its experts");
    field("moe_experts_pipeline_degree", &C::moe_experts_pipeline_degree,
          "With the alltoall dispatcher: groups that a rank's experts are divided into; one group's tokens travel "
          "while another's are computed. At least 2; 0: off");
  }
};

// Ranks that the experts are distributed over, as given or TP times as many.
int expert_model_parallel_size(const ModelParallelConfig& config);
// Ranks that share each expert, as given or TP.
int expert_tensor_parallel_size(const ModelParallelConfig& config);
// Whether tokens of a layer with experts leave their rank.
bool dispatches_tokens(const TrainerConfig& config);
bool gathers_tokens(const ExpertParallelConfig& config);
// Whether --moe-hierarchical-alltoallv has blocks of experts to go to, and TP ranks within them.
bool exchanges_hierarchically(const TrainerConfig& config);
// Groups of the experts of a rank whose rows are exchanged apart; 1: all together.
int64_t groups_of_experts(const TrainerConfig& config);
// What is computed while tokens are on their way.
layout::ExpertOverlap expert_overlap(const TrainerConfig& config);

Feature expert_parallel_feature();

}  // namespace ms::train
