// A step after the first: it takes no memory for tensors, makes no oneDNN primitive and starts no thread; what is left
// on the heap are shapes and ids, each smaller than the least tensor.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <numeric>

#include "kernels/gemm.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace {

std::atomic<size_t> largest_on_heap{0};

}  // namespace

// Not inlined: GCC 12 takes an inlined half of a pair for a mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  size_t seen = largest_on_heap.load();
  while (size > seen && !largest_on_heap.compare_exchange_weak(seen, size)) {
  }
  if (void* block = std::malloc(size)) return block;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* block) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace ms::train {
namespace {

constexpr int64_t kSeq = 16, kBatch = 4, kMicrobatches = 2;

std::vector<Microbatch> random_batch(int64_t vocab_size) {
  std::vector<Microbatch> batch(kMicrobatches);
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

// Returns how many weights were packed.
int64_t expect_steady_steps(const std::function<void(TrainerConfig&)>& change) {
  const test::TemporaryFolder folder;
  int64_t packed = 0;
  TrainerConfig config = test::tiny_config(folder.path());
  change(config);
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    config.model.vocab_size = 257;
    config.training.train_iters = 1;
    config.resolve_and_validate(1);
    core::ProcessGroups groups(endpoint, config.grid(1));
    core::Arena arena;
    core::ThreadPool pool(2);
    ops::Context ops{pool, arena};
    RankState state{config, groups, ops};
    ParameterStore parameters(state);
    Optimizer optimizer(state, parameters);
    GptStage stage(state, parameters);
    StepRunner runner(state, stage);
    parameters.initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
      optimizer.set_master(parameter, values);
    });
    const std::vector<Microbatch> batch = random_batch(257);
    const auto step = [&](int64_t number) {
      parameters.zero_grads();
      const BatchResult result = runner.train(batch, /*loss_scale=*/1);
      const double norm = optimizer.finish_gradients(result.grad_scale);
      optimizer.update({.lr = 1e-3, .step = number, .grad_scale = result.grad_scale, .grad_norm = norm});
    };
    step(1);
    const int64_t blocks = arena.system_allocations(), primitives = kernels::gemm_primitives_created();
    const int64_t threads = threads_of_this_process();
    largest_on_heap = 0;
    for (int64_t number = 2; number < 5; ++number) step(number);
    for (const float grad : parameters.grads().elements<float>()) ASSERT_EQ(grad, 0);  // cleared by the update
    for (const Parameter& parameter : parameters.all()) {
      if (parameter.packed == nullptr || parameter.packed->times_packed() == 0) continue;
      ++packed;
      EXPECT_EQ(parameter.packed->times_packed(), 4) << parameter.spec.key;  // once a step
    }
    EXPECT_EQ(arena.system_allocations(), blocks);
    EXPECT_EQ(kernels::gemm_primitives_created(), primitives);
    EXPECT_EQ(threads_of_this_process(), threads);
    EXPECT_LT(largest_on_heap, static_cast<size_t>(kSeq * kBatch * config.model.hidden_size * 2));
  });
  return packed;
}

TEST(SteadyStep, TakesNothingInFp32) {
  expect_steady_steps([](TrainerConfig&) {});
}

TEST(SteadyStep, TakesNothingInBf16) {
  expect_steady_steps([](TrainerConfig& config) { config.training.bf16 = true; });
}

TEST(SteadyStep, PacksWeightsOnceWithPackedWeights) {
  const int64_t packed = expect_steady_steps([](TrainerConfig& config) { config.training.packed_weights = true; });
  EXPECT_EQ(packed, kernels::active_isa() == kernels::Isa::kScalar ? 0 : 4 * 4 + 1);  // four layers, and the output
}

TEST(SteadyStep, TakesNothingWithRecomputation) {
  expect_steady_steps([](TrainerConfig& config) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
  });
}

TEST(SteadyStep, TakesNothingWithLogitsInChunks) {
  expect_steady_steps([](TrainerConfig& config) { config.training.loss_chunk_size = 4; });
}

}  // namespace
}  // namespace ms::train
