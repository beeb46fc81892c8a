// A step after the first allocates nothing from the heap, creates no oneDNN primitive and starts no thread.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <string_view>

#include "ckpt/source.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/heap_count.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/loop/step.h"
#include "train/loop/swap.h"
#include "train/loop/trainer.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 16, kBatch = 4;

std::vector<Microbatch> random_batch(int64_t vocab_size, size_t num_microbatches) {
  std::vector<Microbatch> batch(num_microbatches);
  int64_t draw = 1;
  for (Microbatch& m : batch) {
    m.batch = kBatch, m.seq = kSeq;
    for (int64_t i = 0; i < kBatch * kSeq; ++i) {
      m.tokens.push_back(static_cast<int32_t>(draw++ * 37 % vocab_size));
      m.labels.push_back(static_cast<int32_t>(draw++ * 53 % vocab_size));
    }
    m.loss_mask.assign(m.tokens.size(), 1.0F);
    m.samples.resize(kBatch);
    std::iota(m.samples.begin(), m.samples.end(), int64_t{0});
  }
  return batch;
}

int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

using Change = std::function<void(TrainerConfig&)>;

// Returns the number of packed weights.
int64_t expect_steady_steps(const Change& change, int threads, size_t num_microbatches) {
  const test::TemporaryFolder folder;
  int64_t packed = 0;
  TrainerConfig config = test::tiny_config(folder.path());
  change(config);
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    config.model.vocab_size = 257;
    config.training.train_iters = 1;
    config.training.micro_batch_size = kBatch;
    config.training.global_batch_size = kBatch * static_cast<int64_t>(num_microbatches);
    config.resolve_and_validate(1);
    train::ProcessGroups groups(endpoint, config.grid(1));
    core::Arena arena;
    core::ThreadPool pool(threads);
    ops::Context ops{pool, arena};
    RankState state{config, groups, ops};
    ParameterStore parameters(state);
    const auto swap = RunSwap::open(state);
    Optimizer optimizer(state, parameters);
    GptStage stage(state, parameters);
    if (swap != nullptr) swap->serve(stage), swap->serve(optimizer);
    StepRunner runner(state, stage);
    parameters.initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
      optimizer.set_master(parameter, values);
    });
    optimizer.release_state(/*is_changed=*/true);
    const std::vector<Microbatch> batch = random_batch(257, num_microbatches);
    const auto step = [&](int64_t number) {
      parameters.zero_grads();
      const BatchResult result = runner.train(batch, /*loss_scale=*/1);
      const double norm = optimizer.finish_gradients(result.grad_scale);
      optimizer.update({.lr = 1e-3, .step = number, .grad_scale = result.grad_scale, .grad_norm = norm});
    };
    step(1);
    const int64_t blocks = arena.system_allocations(), primitives = kernels::gemm_primitives_created();
    const int64_t running = threads_of_this_process();
    test::take_heap_count();
    for (int64_t number = 2; number < 5; ++number) step(number);
    const test::HeapCount heap = test::take_heap_count();
    for (const float grad : parameters.grads().elements<float>()) ASSERT_EQ(grad, 0);  // cleared by the update
    for (const Parameter& parameter : parameters.all()) {
      if (parameter.packed == nullptr || parameter.packed->times_packed() == 0) continue;
      ++packed;
      EXPECT_EQ(parameter.packed->times_packed(), 4) << parameter.spec.key;  // once per step
    }
    EXPECT_EQ(arena.system_allocations(), blocks);
    EXPECT_EQ(kernels::gemm_primitives_created(), primitives);
    EXPECT_EQ(threads_of_this_process(), running);
    // oneDNN allocates internally, and its header builds the list of a primitive's arguments in our code. It computes
    // no product of this model where our kernels have vectors.
    if (primitives == 0) {
      EXPECT_EQ(heap.our_blocks, 0);
    }
    if (primitives == 0 && kernels::cpu_supports(kernels::Isa::kAvx2)) {
      EXPECT_EQ(heap.onednn_blocks, 0);
    }
    EXPECT_LT(heap.our_largest, static_cast<size_t>(kSeq * kBatch * config.model.hidden_size * 2));
  });
  return packed;
}

void expect_steady_steps(const Change& change) {
  for (const int threads : {1, 2}) {
    for (const size_t num_microbatches : {1, 2}) {
      SCOPED_TRACE(core::cat(threads, " threads, ", num_microbatches, " micro-batches"));
      expect_steady_steps(change, threads, num_microbatches);
    }
  }
}

TEST(SteadyStep, AllocatesNothingInFp32) {
  expect_steady_steps([](TrainerConfig&) {});
}

TEST(SteadyStep, AllocatesNothingInBf16) {
  expect_steady_steps([](TrainerConfig& config) { config.training.bf16 = true; });
}

TEST(SteadyStep, AllocatesNothingInBf16WithSharedMasterWeights) {
  expect_steady_steps([](TrainerConfig& config) {
    config.training.bf16 = true;
    config.optimizer.reuse_fp32_param = true;
  });
}

TEST(SteadyStep, PacksWeightsOnceWithPackedWeights) {
  const int64_t expected = kernels::active_isa() == kernels::Isa::kScalar ? 0 : 4 * 4 + 1;  // four layers, the output
  for (const int threads : {1, 2}) {
    const auto pack = [](TrainerConfig& config) { config.training.packed_weights = true; };
    EXPECT_EQ(expect_steady_steps(pack, threads, 2), expected);
  }
}

TEST(SteadyStep, AllocatesNothingForAModelWithAllFeatures) {
  expect_steady_steps([](TrainerConfig& config) {
    config.model.normalization = "LayerNorm";
    config.model.position_embedding_type = "learned_absolute";
    config.model.swiglu = false;
    config.model.add_bias_linear = true;
    config.model.qk_layernorm = true;
    config.model.post_norm = true;
    config.model.untie_embeddings_and_output_weights = false;
    config.model.output_logit_softcapping = 3;
    config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  });
}

TEST(SteadyStep, AllocatesNothingWithRecomputation) {
  for (const char* method : {"uniform", "block"}) {
    expect_steady_steps([&](TrainerConfig& config) {
      config.training.recompute_granularity = "full";
      config.training.recompute_method = method;
      config.training.recompute_num_layers = 2;
    });
  }
}

TEST(SteadyStep, AllocatesNothingWithASwap) {
  expect_steady_steps([](TrainerConfig& config) {
    config.training.swap_attention = true;
    config.training.swap_min_tensor_kib = 0;
  });
}

TEST(SteadyStep, AllocatesNothingWithStateOnATier) {
  expect_steady_steps([](TrainerConfig& config) {
    config.training.bf16 = true;
    config.optimizer.swap_optimizer = true;
  });
}

TEST(SteadyStep, AllocatesNothingWithChunkedLogits) {
  expect_steady_steps([](TrainerConfig& config) { config.training.loss_chunk_size = 4; });
}

// Iterations as in Trainer::run: reading samples, agreement of ranks, writing lines.
TEST(SteadyStep, AllocatesNothingInAWholeRun) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 12;  // beyond 10: more digits
  config.logger.log_interval = 1;
  config.logger.report_memory = true;
  config.logger.metrics_path = folder / "metrics.jsonl";
  std::vector<test::HeapCount> counts;
  counts.reserve(32);
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(2);
    TrainerServices services;
    services.at_phase = [&](std::string_view phase) {
      if (phase == "forward") counts.push_back(test::take_heap_count());
    };
    Trainer(config, endpoint, pool, /*recorder=*/nullptr, services).run();
  });
  ASSERT_EQ(counts.size(), 12U);
  for (size_t i = 2; i < counts.size(); ++i) EXPECT_EQ(counts[i].our_blocks, 0) << "iteration " << i;
}

}  // namespace
}  // namespace ms::train
