#include "train/features/layerzero.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

bool is_layered(const TrainerConfig& config) { return config.parallel.layerzero; }
bool has_file(const TrainerConfig& config) { return !config.parallel.layerzero_config.empty(); }

void resolve_layerzero(TrainerConfig& config) {
  if (!is_layered(config)) return;
  config.parallel.use_megatron_fsdp = true;
  if (config.parallel.data_parallel_sharding_strategy.empty())
    config.parallel.data_parallel_sharding_strategy = "optim_grads_params";
  if (config.parallel.outer_dp_sharding_strategy.empty()) config.parallel.outer_dp_sharding_strategy = "optim";
}

void check_layerzero(const TrainerConfig& config, int /*world_size*/) {
  const std::string& strategy = config.parallel.data_parallel_sharding_strategy;
  require(!is_layered(config) || strategy == "optim_grads_params",
          "--layerzero is --data-parallel-sharding-strategy optim_grads_params, not ", strategy, ": give one of both");
  const std::string& outer = config.parallel.outer_dp_sharding_strategy;
  require(!is_layered(config) || outer == "optim", "--layerzero is --outer-dp-sharding-strategy optim, not ", outer,
          ": give one of both");
}

}  // namespace

Feature layerzero_feature() {
  return {
      .name = "layerzero",
      .level = 2,
      .effect =
          "ZeRO-3 within groups of ranks, such as those of a node, and the optimizer's state over all DP ranks: "
          "between groups a rank's own part of gradients and weights is sent once a step",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<LayerZeroConfig>("parallel", config.parallel); },
      .is_active = is_layered,
      .rules = {needs("--layerzero", is_layered, "--layerzero-config", has_file, " FILE, as in MindSpeed"),
                needs("--layerzero-config", has_file, "--layerzero", is_layered)},
      .resolve = resolve_layerzero,
      .check = check_layerzero,
  };
}

}  // namespace ms::train
