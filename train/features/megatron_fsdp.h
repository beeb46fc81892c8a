// ZeRO-2 and ZeRO-3: gradients are divided over the data-parallel ranks, too, each micro-batch's are reduced as soon as
// they are there, and then the weights, which are gathered when they are read (train/optim/bucket.h).
// Sources: arXiv 1910.02054; megatron/core/distributed/fsdp (MegatronFSDP), which calls the stages
// --data-parallel-sharding-strategy no_shard, optim, optim_grads and optim_grads_params.
#pragma once

#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct MegatronFsdpConfig {
  bool use_megatron_fsdp = false;
  std::string data_parallel_sharding_strategy;
  bool use_torch_fsdp2 = false;
  bool torch_fsdp2_no_reshard_after_forward = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = MegatronFsdpConfig;
    field("use_megatron_fsdp", &C::use_megatron_fsdp,
          "Divide what --data-parallel-sharding-strategy names over the data-parallel ranks. Implies "
          "--use-distributed-optimizer, as in Megatron");
    field(
        "data_parallel_sharding_strategy", &C::data_parallel_sharding_strategy,
        "With --use-megatron-fsdp: no_shard (nothing), optim (ZeRO-1: master weights and optimizer state), optim_grads "
        "(ZeRO-2: gradients too, which are reduced after each micro-batch: less memory, more bytes) or "
        "optim_grads_params (ZeRO-3: weights too, which are gathered before each forward and each backward of a layer; "
        "the default, as Megatron's). Without that flag it has no effect, as in Megatron");
    field("use_torch_fsdp2", &C::use_torch_fsdp2,
          "What torch's FSDP2 does, by --use-megatron-fsdp: divide weights, gradients and optimizer state over the "
          "data-parallel ranks (optim_grads_params)");
    field("torch_fsdp2_no_reshard_after_forward", &C::torch_fsdp2_no_reshard_after_forward,
          "With --use-torch-fsdp2: keep weights from forward to backward. Here they then stay all the time: "
          "optim_grads (ZeRO-2)");
  }
};

struct ModelParallelConfig;
// The stage of ZeRO that a configuration asks for.
int zero_stage(const ModelParallelConfig& config);

Feature megatron_fsdp_feature();

}  // namespace ms::train
