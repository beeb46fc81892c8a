// The memory of a run equals the formulas of train/README.md: bytes per parameter for what is kept from step to step,
// bytes per token for activations, minus what recomputation drops.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/comm/comm_op.h"
#include "core/error.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::MemoryTag;

constexpr int64_t kSeq = 64, kBatch = 2, kTokens = kSeq * kBatch;

enum class Family { kLlama, kGpt };

struct Mode {
  const char* name;
  bool recomputed;      // --recompute-norm --recompute-activation-function
  const char* method;   // of full recomputation; empty: none
  int64_t num_layers;   // --recompute-num-layers
  bool mlp = false;     // --recompute-modules mlp
  bool reuses = false;  // --reuse-fp32-param, with bf16
};

constexpr Mode kModes[] = {{"none", false, "", 0},
                           {"norm and activation", true, "", 0},
                           {"norm and MLP", true, "", 0, true},
                           {"norm and activation, shared master weights", true, "", 0, false, true},
                           {"3 layers, norm and activation in the rest", true, "block", 3},
                           {"every layer", false, "uniform", 1},
                           {"every layer in groups of 2", false, "uniform", 2}};

train::TrainerConfig config_of(Family family, bool bf16, const Mode& mode, const std::filesystem::path& folder) {
  train::TrainerConfig config = test::tiny_config(folder);
  core::TransformerConfig& model = config.model;
  model.num_layers = 8;
  model.hidden_size = 128;
  model.num_attention_heads = 4;
  model.kv_channels = 32;
  model.num_query_groups = 2;
  model.ffn_hidden_size = 352;
  if (family == Family::kGpt) {
    model.normalization = "LayerNorm";
    model.position_embedding_type = "learned_absolute";
    model.swiglu = false;
    model.add_bias_linear = true;
    model.group_query_attention = false;
    model.num_query_groups = core::TransformerConfig().num_query_groups;
    model.ffn_hidden_size = 512;
    model.untie_embeddings_and_output_weights = false;
  }
  train::TrainingConfig& training = config.training;
  training.train_iters = 2;
  training.seq_length = kSeq;
  training.micro_batch_size = training.global_batch_size = kBatch;
  training.bf16 = bf16;
  training.recompute_norm = training.recompute_activation_function = mode.recomputed;
  if (mode.mlp) {
    training.recompute_granularity = "selective";
    training.recompute_modules = {"mlp"};
  }
  config.optimizer.reuse_fp32_param = mode.reuses && bf16;
  if (*mode.method != '\0') {
    training.recompute_granularity = "full";
    training.recompute_method = mode.method;
    training.recompute_num_layers = mode.num_layers;
  }
  return config;
}

struct Formula {
  Formula(const train::TrainerConfig& config, const Mode& recompute)
      : model(config.model), mode(recompute), element(config.training.bf16 ? 2 : 4) {}

  int64_t hidden() const { return element * kTokens * model.hidden_size; }
  int64_t heads() const { return model.num_attention_heads; }
  int64_t groups() const { return model.group_query_attention ? model.num_query_groups : heads(); }

  int64_t product() const { return element * kTokens * model.ffn_hidden_size; }
  int64_t fc1() const { return model.gated() ? 2 * product() : product(); }

  // Bytes of a layer's activations; an activation without a gate has one input and one output of f.
  int64_t layer(bool recomputed) const {
    const int64_t norms = (recomputed ? 2 : 4) * hidden(), mlp = mode.mlp ? 0 : fc1() + (recomputed ? 0 : product());
    return norms + element * kTokens * (2 * heads() + 2 * groups()) * model.kv_channels + mlp + 4 * kTokens * heads();
  }

  // The largest of two moments: when all layers' activations exist (with the logits, and at the start of backward,
  // which recomputes the MLP), and the backward of a layer that is recomputed whole.
  int64_t activations() const {
    const int64_t layers = model.num_layers, logit = 4 + (element < 4 ? element : 0);
    const int64_t logits = kTokens * model.padded_vocab_size(1) * logit;
    const int64_t recomputed = (mode.mlp ? fc1() : 0) + (mode.recomputed ? product() : 0);
    const int64_t head = 2 * hidden() + std::max(logits, recomputed);
    const std::string method = mode.method;
    if (method.empty()) return layers * layer(mode.recomputed) + head;
    const bool block = method == "block";
    const int64_t group = block ? 1 : mode.num_layers;                // layers run again at once
    const int64_t inputs = block ? mode.num_layers : layers / group;  // inputs that are kept
    const int64_t whole = block ? (layers - mode.num_layers) * layer(mode.recomputed) : 0;
    return inputs * hidden() + std::max(whole + head, group * layer(false) + 2 * hidden());
  }

  const core::TransformerConfig& model;
  const Mode& mode;
  int64_t element;
};

int64_t peak(const train::StepMetrics& step, MemoryTag tag) { return step.peak_bytes[static_cast<size_t>(tag)]; }

void expect_within_a_tenth(int64_t seen, int64_t formula, const char* what) {
  EXPECT_NEAR(static_cast<double>(seen), static_cast<double>(formula), 0.1 * static_cast<double>(formula))
      << what << ": seen " << seen << " bytes, by the formula " << formula;
}

TEST(Memory, EqualsTheFormulas) {
  for (const Family family : {Family::kLlama, Family::kGpt}) {
    for (const bool bf16 : {false, true}) {
      for (const Mode& mode : kModes) {
        SCOPED_TRACE(core::cat(family == Family::kLlama ? "Llama" : "GPT", bf16 ? " bf16, " : " fp32, ", mode.name));
        const test::TemporaryFolder folder;
        train::TrainerConfig config = config_of(family, bf16, mode, folder.path());
        const train::StepMetrics step = test::run_on_threads(config, 1).steps.back();
        config.model.vocab_size = 257;
        config.resolve_and_validate(1);
        const int64_t parameters = config.model.num_parameters(1);

        // The row sums of a tied embedding, for the rows of a step, are within the tolerance of a tenth.
        EXPECT_EQ(peak(step, MemoryTag::kMaster) > 0, bf16);
        expect_within_a_tenth(peak(step, MemoryTag::kParam) + peak(step, MemoryTag::kGrad) +
                                  peak(step, MemoryTag::kMaster) + peak(step, MemoryTag::kOptim),
                              (bf16 && !mode.reuses ? 18 : 16) * parameters, "static");
        expect_within_a_tenth(peak(step, MemoryTag::kAct), Formula(config, mode).activations(), "activations");

        // The arena holds what was needed at once; a heap grows by 2 MiB.
        EXPECT_EQ(step.arena.growths, 0);
        EXPECT_LT(static_cast<double>(step.arena.held_bytes - (int64_t{4} << 20)),
                  1.1 * static_cast<double>(step.arena.peak_bytes));
      }
    }
  }
}

// 2 bytes of weights and 4 of gradients, and of master weights and moments each rank's share: 6 + 12/D bytes a
// parameter in bf16. The reduction of the gradients adds two chunks of each peer, however large they are.
TEST(Memory, ZeroOneNeedsItsShareAndTwoChunksOfEachPeer) {
  for (const int dp : {2, 4}) {
    SCOPED_TRACE(dp);
    const test::TemporaryFolder folder;
    train::TrainerConfig config = config_of(Family::kLlama, /*bf16=*/true, kModes[0], folder.path());
    config.model.num_layers = 2;
    config.model.hidden_size = 512;
    config.model.kv_channels = 128;
    config.model.ffn_hidden_size = 1408;
    config.parallel.use_distributed_optimizer = true;
    config.training.micro_batch_size = 1;
    config.training.global_batch_size = dp;
    const train::StepMetrics step = test::run_on_threads(config, dp).steps.back();
    config.model.vocab_size = 257;
    config.resolve_and_validate(dp);
    const auto parameters = static_cast<double>(config.model.num_parameters(1));
    const int64_t chunks = int64_t{dp - 1} * 2 * core::kReductionChunkBytes;
    ASSERT_GT(4 * parameters / dp, 2.0 * core::kReductionChunkBytes) << "or chunks save nothing";
    const auto static_bytes = static_cast<double>(peak(step, MemoryTag::kParam) + peak(step, MemoryTag::kGrad) +
                                                  peak(step, MemoryTag::kMaster) + peak(step, MemoryTag::kOptim));
    EXPECT_NEAR(static_bytes, (6 + 12.0 / dp) * parameters, 0.05 * (6 + 12.0 / dp) * parameters);
    EXPECT_LE(peak(step, MemoryTag::kComm), chunks);
  }
}

// ZeRO-2: 2 bytes of weights, of gradients, master weights and moments each rank's share, and two layers' gradients
// that have not been reduced: 2 + 16/D bytes a parameter in bf16. ZeRO-3: of weights its share, too, and two layers
// that are gathered. A reduction adds two chunks of each peer.
TEST(Memory, ZeroTwoAndThreeNeedTheirShareAndTwoLayers) {
  for (const int dp : {2, 4, 8}) {
    for (const bool weights : {false, true}) {
      SCOPED_TRACE(core::cat(dp, weights ? " ZeRO-3" : " ZeRO-2"));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = config_of(Family::kLlama, /*bf16=*/true, kModes[0], folder.path());
      config.model.num_layers = 4;
      config.model.hidden_size = 384;
      config.model.kv_channels = 96;
      config.model.ffn_hidden_size = 1056;
      config.parallel.use_megatron_fsdp = true;
      config.parallel.data_parallel_sharding_strategy = weights ? "optim_grads_params" : "optim_grads";
      config.training.micro_batch_size = 1;
      config.training.global_batch_size = 2 * dp;
      const train::StepMetrics step = test::run_on_threads(config, dp).steps.back();
      config.model.vocab_size = 257;
      config.resolve_and_validate(dp);
      const auto parameters = static_cast<double>(config.model.num_parameters(1)), replicas = static_cast<double>(dp);
      const double layer = 384.0 * (384 + 2 * 192 + 384 + 3 * 1056);
      const double formula =
          (weights ? 18 / replicas : 2 + 16 / replicas) * parameters + 2 * (weights ? 4 + 2 : 4) * layer;
      const auto static_bytes = static_cast<double>(peak(step, MemoryTag::kParam) + peak(step, MemoryTag::kGrad) +
                                                    peak(step, MemoryTag::kMaster) + peak(step, MemoryTag::kOptim));
      EXPECT_NEAR(static_bytes, formula, 0.05 * formula);
      const double gradients = 4 * parameters / replicas + 8 * layer;
      EXPECT_NEAR(static_cast<double>(peak(step, MemoryTag::kGrad)), gradients, 0.05 * gradients);
      EXPECT_LE(peak(step, MemoryTag::kComm), int64_t{dp - 1} * 2 * core::kReductionChunkBytes);
      EXPECT_EQ(step.arena.growths, 0) << "a step after the first takes nothing from the system";
    }
  }
}

double static_bytes_of(const train::StepMetrics& step) {
  return static_cast<double>(peak(step, MemoryTag::kParam) + peak(step, MemoryTag::kGrad) +
                             peak(step, MemoryTag::kMaster) + peak(step, MemoryTag::kOptim));
}

train::TrainerConfig wide_config(const test::TemporaryFolder& folder, int dp) {
  train::TrainerConfig config = config_of(Family::kLlama, /*bf16=*/true, kModes[0], folder.path());
  config.model.num_layers = 4;
  config.model.hidden_size = 384;
  config.model.kv_channels = 96;
  config.model.ffn_hidden_size = 1056;
  config.parallel.use_megatron_fsdp = true;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = 2 * dp;
  return config;
}

// Experts are divided among the ranks that hold them, and a slot has those of a layer beside its rest; where one rank
// holds them, they need none.
TEST(Memory, ExpertsOfZeroTwoAndThreeAreDividedAmongTheirReplicas) {
  constexpr int kDp = 4;
  for (const int ep : {2, 4}) {
    for (const bool weights : {false, true}) {
      SCOPED_TRACE(core::cat("EP ", ep, weights ? " ZeRO-3" : " ZeRO-2"));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = wide_config(folder, kDp);
      config.parallel.data_parallel_sharding_strategy = weights ? "optim_grads_params" : "optim_grads";
      config.model.num_experts = 4;
      config.model.moe_router_topk = 2;
      config.model.moe_ffn_hidden_size = 352;
      config.parallel.expert_model_parallel_size = ep;
      config.parallel.expert_tensor_parallel_size = 1;
      const train::StepMetrics step = test::run_on_threads(config, kDp).steps.back();
      config.model.vocab_size = 257;
      config.resolve_and_validate(kDp);
      const double vocabulary = 2.0 * static_cast<double>(config.model.padded_vocab_size(1)) * 384;
      const double dense_layer = 384.0 * (384 + 2 * 192 + 384 + 4), experts_of_layer = 3.0 * 384 * 352 * 4 / ep;
      const double dense = vocabulary + 4 * dense_layer, experts = 4 * experts_of_layer;
      const double replicas = static_cast<double>(kDp) / ep;  // of an expert
      const double slot = dense_layer + (ep < kDp ? experts_of_layer : 0);
      const double owned = dense / kDp + experts / replicas;
      const double formula = weights ? 18 * owned + 2 * 6 * slot : 2 * (dense + experts) + 16 * owned + 2 * 4 * slot;
      EXPECT_NEAR(static_bytes_of(step), formula, 0.05 * formula);
      const double gradients = 4 * owned + 8 * slot;
      EXPECT_NEAR(static_cast<double>(peak(step, MemoryTag::kGrad)), gradients, 0.05 * gradients);
      EXPECT_EQ(step.arena.growths, 0);
    }
  }
}

// Weights and gradients are divided within an instance, of I the state over all: (2 + 4) I/D + 12/D bytes a parameter.
TEST(Memory, StateOverInstancesIsDividedByAllRanks) {
  for (const auto& [dp, instances] : {std::pair{4, 2}, std::pair{8, 4}}) {
    for (const bool divides : {false, true}) {
      SCOPED_TRACE(core::cat(dp, " ranks, ", instances, divides ? " instances that divide the state" : " instances"));
      const test::TemporaryFolder folder;
      train::TrainerConfig config = wide_config(folder, dp);
      config.parallel.num_distributed_optimizer_instances = instances;
      config.parallel.outer_dp_sharding_strategy = divides ? "optim" : "no_shard";
      const train::StepMetrics step = test::run_on_threads(config, dp).steps.back();
      config.model.vocab_size = 257;
      config.resolve_and_validate(dp);
      const auto parameters = static_cast<double>(config.model.num_parameters(1));
      const double layer = 384.0 * (384 + 2 * 192 + 384 + 3 * 1056);
      const double within = static_cast<double>(dp) / instances, over = divides ? dp : within;
      const double formula = (6 / within + 12 / over) * parameters + 2 * (4 + 2) * layer;
      EXPECT_NEAR(static_bytes_of(step), formula, 0.05 * formula);
      const double state = 12 / over * parameters;
      EXPECT_NEAR(static_cast<double>(peak(step, MemoryTag::kMaster) + peak(step, MemoryTag::kOptim)), state,
                  0.05 * state);
    }
  }
}

}  // namespace
}  // namespace ms
