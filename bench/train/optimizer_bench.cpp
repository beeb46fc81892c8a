// What an update by AdamW costs beside the memory that it must move: optimizer/tensors:<n>/threads:2, fp32, one rank.
//
// The gradients' norm reads 4 bytes a parameter, AdamW reads 16 (weights, gradients, both moments) and writes 12. `x
// bytes` is the time of both, Optimizer::finish_gradients and Optimizer::update, divided by the time in which stream
// movers move as many bytes, through other memory, in turn with them: the median of the turns' ratios; `norm` and
// `adamw` are the same of either. AdamW sets gradients to 0, too, 4 bytes more: a pass of its own would cost more.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "bench/median.h"
#include "core/trace/recorder.h"
#include "kernels/roofline.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/model/parameters.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

struct Mixture {
  int64_t layers, hidden, experts, ffn, vocabulary;
  int64_t tensors;  // that it has
};

constexpr Mixture kMixtures[] = {
    {8, 512, 32, 256, 8192, 563},    // 118 M parameters
    {48, 64, 128, 64, 1024, 12288},  // 76 M in experts of 4,096 and 8,192 elements, and what is around them
};

TrainerConfig configured(const std::filesystem::path& folder, const Mixture& mixture) {
  TrainerConfig config = test::tiny_config(folder);
  core::TransformerConfig& model = config.model;
  model.num_layers = mixture.layers;
  model.hidden_size = mixture.hidden;
  model.num_attention_heads = 8;
  model.num_query_groups = 8;
  model.kv_channels = mixture.hidden / model.num_attention_heads;
  model.add_qkv_bias = true;
  model.vocab_size = mixture.vocabulary;
  model.num_experts = mixture.experts;
  model.moe_ffn_hidden_size = mixture.ffn;
  config.training.train_iters = 1;
  return config;
}

double seconds_of(const auto& work) {
  const int64_t begin = core::trace::now_ns();
  work();
  return static_cast<double>(core::trace::now_ns() - begin) * 1e-9;
}

// Memory as large as the state of an update, which nobody else uses; zeros stay zeros however often they are added up.
class OtherMemory {
 public:
  OtherMemory(core::Arena& arena, core::ThreadPool& pool, int64_t elements) : pool_(pool), elements_(elements / 8 * 8) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i] = arena.allocate(elements * int64_t{sizeof(float)}, core::MemoryTag::kTmp);
      streams_.in[i] = streams_.out[i] = reinterpret_cast<float*>(buffers_[i].data());
      std::fill_n(streams_.out[i], elements, 0.0F);
    }
  }
  double seconds(int reads, int writes) const {
    const kernels::MoveStreams move = kernels::stream_mover(reads, writes, false);
    return seconds_of([&] {
      pool_.parallel_for(elements_, 1 << 16, [&](int64_t begin, int64_t end) { move(streams_, begin, end); });
    });
  }

 private:
  core::ThreadPool& pool_;
  int64_t elements_;
  std::array<core::Buffer, 4> buffers_;
  kernels::Streams streams_{};
};

void measure(benchmark::State& state, const Mixture& mixture, core::Endpoint& endpoint) {
  const test::TemporaryFolder folder;
  TrainerConfig config = configured(folder.path(), mixture);
  config.resolve_and_validate(1);
  core::Arena arena;
  core::ThreadPool pool{2};
  ops::Context ops{pool, arena};
  ProcessGroups groups(endpoint, config.grid(1));
  RankState rank{config, groups, ops};
  ParameterStore parameters(rank);
  Optimizer optimizer(rank, parameters);
  parameters.initialize(1, [](const Parameter&, const core::TensorView&) {});
  const int64_t elements = parameters.trained_elems();
  const OtherMemory other(arena, pool, elements);
  const auto grads = parameters.grads().elements<float>();
  Optimizer::StepFactors factors{.lr = 1e-4, .weight_decay = 0.01};
  std::vector<double> both, of_norm, of_adamw;
  for (auto _ : state) {
    pool.parallel_for(elements, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) grads[static_cast<size_t>(i)] = 1e-3F;
    });
    const double read = other.seconds(1, 0), moved = other.seconds(4, 3);
    const double norm = seconds_of([&] { factors.grad_norm = optimizer.finish_gradients(1); });
    const double adamw = seconds_of([&] { optimizer.update(factors); });
    ++factors.step;
    both.push_back((norm + adamw) / (read + moved));
    of_norm.push_back(norm / read), of_adamw.push_back(adamw / moved);
    state.SetIterationTime(norm + adamw);
  }
  int64_t size = 0;
  for (const Parameter& parameter : parameters.all()) size += parameter.size();
  const double want = 1e-3 * std::sqrt(static_cast<double>(size));
  if (std::abs(factors.grad_norm - want) > 0.01 * want) state.SkipWithError("wrong norm");
  state.counters["tensors"] = static_cast<double>(parameters.all().size());
  state.counters["parameters"] = static_cast<double>(size);
  state.counters["x bytes"] = bench::median(both);
  state.counters["norm"] = bench::median(of_norm), state.counters["adamw"] = bench::median(of_adamw);
}

}  // namespace
}  // namespace ms::train

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  for (const auto& mixture : ms::train::kMixtures) {
    benchmark::RegisterBenchmark(("optimizer/tensors:" + std::to_string(mixture.tensors) + "/threads:2").c_str(),
                                 [&](benchmark::State& state) {
                                   ms::test::run_thread_ranks(1, [&](ms::core::Endpoint& endpoint) {
                                     ms::train::measure(state, mixture, endpoint);
                                   });
                                 })
        ->Iterations(9)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}
