// Expert parallelism: the experts of a layer are on several ranks, and tokens travel to the ranks of their experts.
// Sources: megatron/core/parallel_state.py (expert groups), megatron/core/transformer/moe/token_dispatcher.py; GShard
// (arXiv 2006.16668).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/layout/rank_grid.h"
#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;

struct ExpertParallelConfig {
  int expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;
  std::string moe_token_dispatcher_type = "alltoall";

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ExpertParallelConfig;
    field("expert_model_parallel_size", &C::expert_model_parallel_size,
          "Ranks that the experts of a layer are distributed over (EP); a divisor of the data-parallel size, times TP "
          "/ --expert-tensor-parallel-size");
    field("expert_tensor_parallel_size", &C::expert_tensor_parallel_size,
          "Ranks that share each expert (ETP); 1 leaves experts whole where TP divides the rest of a layer. Default: "
          "--tensor-model-parallel-size");
    field("moe_token_dispatcher_type", &C::moe_token_dispatcher_type,
          "How tokens reach the ranks of their experts: alltoall (each to those ranks alone), or allgather (all to all "
          "ranks, less traffic where a token has more experts than there are ranks). alltoall_seq, MindSpeed's name, "
          "is alltoall");
  }
};

// Ranks that share each expert, as given or TP.
int expert_tensor_parallel_size(const ModelParallelConfig& config);
// Whether tokens of a layer with experts leave their rank.
bool dispatches_tokens(const TrainerConfig& config);
bool gathers_tokens(const ExpertParallelConfig& config);

Feature expert_parallel_feature();

}  // namespace ms::train
