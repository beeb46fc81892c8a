#include "train/features/megatron_fsdp.h"

#include <algorithm>
#include <array>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kStrategy = "--data-parallel-sharding-strategy";
constexpr const char* kDividesGradients = "--data-parallel-sharding-strategy optim_grads or optim_grads_params";
constexpr const char* kDividesWeights = "--data-parallel-sharding-strategy optim_grads_params";
constexpr std::array<const char*, 4> kStrategies = {"no_shard", "optim", "optim_grads", "optim_grads_params"};

bool is_sharded(const TrainerConfig& config) { return config.parallel.use_megatron_fsdp; }
bool divides_gradients(const TrainerConfig& config) { return is_sharded(config) && zero_stage(config.parallel) >= 2; }
bool divides_weights(const TrainerConfig& config) { return is_sharded(config) && zero_stage(config.parallel) >= 3; }
bool gives_size_of_buckets(const TrainerConfig& config) {
  return config.parallel.ddp_bucket_size.has_value() || config.parallel.ddp_num_buckets.has_value();
}

const char* torch_strategy(const TrainerConfig& config) {
  return config.parallel.torch_fsdp2_no_reshard_after_forward ? "optim_grads" : "optim_grads_params";
}

std::vector<Rule> rules() {
  return {
      needs(
          "--torch-fsdp2-no-reshard-after-forward",
          [](const TrainerConfig& c) { return c.parallel.torch_fsdp2_no_reshard_after_forward; }, "--use-torch-fsdp2",
          [](const TrainerConfig& c) { return c.parallel.use_torch_fsdp2; }),
      excludes(
          kDividesGradients, divides_gradients, "--loss-chunk-size",
          [](const TrainerConfig& c) { return c.training.loss_chunk_size > 0; },
          ", whose forward adds to gradients of the output layer that its backward ends"),
      excludes(
          kDividesGradients, divides_gradients, "--mtp-mem-efficient-logits",
          [](const TrainerConfig& c) { return c.training.mtp_mem_efficient_logits; },
          ", whose forward adds to gradients of the output layer that its backward ends"),
      excludes(
          kDividesGradients, divides_gradients, "--schedules-method dualpipev",
          [](const TrainerConfig& c) { return c.parallel.schedules_method == "dualpipev"; },
          ", as MindSpeed's: a forward beside each backward would hold a layer more"),
      excludes(
          kDividesGradients, divides_gradients, "--automated-pipeline or --automated-pipeline-perf",
          [](const TrainerConfig& c) { return c.parallel.automated_pipeline || c.parallel.automated_pipeline_perf; },
          ", which measures parts of the model with whole gradients"),
      excludes(
          kDividesWeights, divides_weights, "--packed-weights",
          [](const TrainerConfig& c) { return c.training.packed_weights; }, ", which keeps copies of all weights"),
      excludes(
          kDividesWeights, divides_weights, "--check-weight-hash-across-dp-replicas-interval",
          [](const TrainerConfig& c) { return c.training.check_weight_hash_across_dp_replicas_interval > 0; },
          ", as in Megatron: no rank has another's weights"),
      excludes(
          kDividesWeights, divides_weights, "--generate",
          [](const TrainerConfig& c) { return !c.generate.generate.empty(); },
          ", which reads all weights for each token: leave --use-megatron-fsdp out"),
  };
}

std::vector<std::string> notices(const TrainerConfig& config) {
  if (!divides_gradients(config) || !gives_size_of_buckets(config)) return {};
  return {core::cat("--ddp-bucket-size and --ddp-num-buckets have no effect with ", kStrategy, " ",
                    config.parallel.data_parallel_sharding_strategy,
                    ": a layer is a bucket, as are the embedding and the output layer")};
}

}  // namespace

int zero_stage(const ModelParallelConfig& config) {
  if (!config.use_megatron_fsdp) return config.use_distributed_optimizer ? 1 : 0;
  const auto* const found = std::ranges::find(kStrategies, config.data_parallel_sharding_strategy);
  return found == kStrategies.end() ? 0 : static_cast<int>(found - kStrategies.begin());
}

Feature megatron_fsdp_feature() {
  return {
      .name = "megatron-fsdp",
      .level = 0,
      .effect =
          "Divides gradients (optim_grads, ZeRO-2) and weights (optim_grads_params, ZeRO-3) over the DP ranks, too: "
          "2 + 16/DP or 18/DP bytes a parameter in bf16, and two layers of unreduced gradients and gathered weights; "
          "gradients are reduced, and weights gathered twice, for each micro-batch",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<MegatronFsdpConfig>("parallel", config.parallel);
            fields.alias("use-custom-fsdp", "use_megatron_fsdp", "true");  // Megatron's older name
          },
      .is_active = is_sharded,
      .rules = rules(),
      .ineffective = {{[](const TrainerConfig& c) {
                         return !c.parallel.data_parallel_sharding_strategy.empty() && !is_sharded(c) &&
                                !c.parallel.use_torch_fsdp2 && !c.parallel.layerzero &&
                                !c.parallel.enable_parallel_optimizer;
                       },
                       "--data-parallel-sharding-strategy has no effect without --use-megatron-fsdp, as in Megatron: "
                       "--use-distributed-optimizer alone decides"}},
      .resolve =
          [](TrainerConfig& c) {
            if (c.parallel.use_torch_fsdp2) {
              c.parallel.use_megatron_fsdp = true;
              if (c.parallel.data_parallel_sharding_strategy.empty())
                c.parallel.data_parallel_sharding_strategy = torch_strategy(c);
            }
            if (!is_sharded(c)) return;
            if (c.parallel.data_parallel_sharding_strategy.empty())
              c.parallel.data_parallel_sharding_strategy = kStrategies.back();
            c.parallel.use_distributed_optimizer = zero_stage(c.parallel) >= 1;
            if (divides_gradients(c)) c.parallel.overlap_grad_reduce = true;
          },
      .check =
          [](const TrainerConfig& c, int) {
            require_one_of(kStrategy, c.parallel.data_parallel_sharding_strategy,
                           {"", "no_shard", "optim", "optim_grads", "optim_grads_params"});
            require(
                !c.parallel.use_torch_fsdp2 || c.parallel.data_parallel_sharding_strategy == torch_strategy(c),
                kStrategy, " ", c.parallel.data_parallel_sharding_strategy, " and --use-torch-fsdp2, which is ",
                torch_strategy(c),
                c.parallel.torch_fsdp2_no_reshard_after_forward ? " with --torch-fsdp2-no-reshard-after-forward" : "",
                ": give one of both");
          },
      .notices = notices,
  };
}

}  // namespace ms::train
