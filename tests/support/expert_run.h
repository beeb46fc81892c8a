// Runs on thread ranks of a tiny model, three of whose four layers have experts, in layouts of experts.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiny_run.h"

namespace ms::test {

struct ExpertLayout {
  TinyLayout layout;
  int ep, etp;
  const char* dispatcher = "alltoall";
  int instances = 1;
  bool divides_state = false;  // over them
  std::string name() const {
    return core::cat(layout.name(), "_ep", ep, "_etp", etp, "_", dispatcher,
                     instances > 1 ? core::cat("_of", instances) : "", divides_state ? "_divided" : "");
  }
};

inline void set_expert_layout(train::TrainerConfig& config, const ExpertLayout& row) {
  config.parallel.expert_model_parallel_size = row.ep;
  config.parallel.expert_tensor_parallel_size = row.etp;
  set_dispatcher(config, row.dispatcher, row.ep, row.layout.tp);
  config.parallel.num_distributed_optimizer_instances = row.instances;
  config.parallel.outer_dp_sharding_strategy = row.divides_state ? "optim" : "no_shard";
}

inline train::TrainerConfig expert_config(const TemporaryFolder& folder, const ExpertLayout& row) {
  train::TrainerConfig config = tiny_config(folder.path(), row.layout);
  set_expert_layout(config, row);
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_layer_freq = "([1,0,1,1])";
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.init_method_std = 0.1;  // scores that rounding does not reorder
  config.training.moe_aux_loss_coeff = {0.02};
  config.training.moe_z_loss_coeff = 0.001;
  config.training.train_iters = 20;
  config.training.global_batch_size = 8;
  return config;
}

struct ExpertOutcome {
  train::RunSummary summary;
  std::map<std::string, std::vector<float>> weights, moments;
};

inline ExpertOutcome run_experts(train::TrainerConfig config, const TemporaryFolder& folder, const ExpertLayout& row,
                                 const std::string& name) {
  config.checkpoint.save = folder / name;
  ExpertOutcome outcome{run_on_threads(config, row.layout.ranks()), {}, {}};
  outcome.weights = read_tensors(outcome.summary.checkpoint, core::TensorRole::kParam);
  outcome.moments = read_tensors(outcome.summary.checkpoint, core::TensorRole::kExpAvg);
  return outcome;
}

}  // namespace ms::test
