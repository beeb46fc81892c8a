// How much of the communication of tensor parallelism DualPipeV's interleaved pairs hide: steps of two stages of two
// tensor-parallel ranks, threads of this process, whose messages take a given time, with and without interleaving.
//
//   interleaving [hidden size] [sequence length] [steps]
//
// Every rank needs a core of its own, or the ranks hide each other's waiting in both cases. Gradients are compared
// first: they are the same to the bit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/train/loop/interleaved_pairs.h"
#include "train/loop/random_batch.h"

namespace ms::train {
namespace {

constexpr int64_t kManyMicrobatches = 16;  // most of them in pairs

struct Measured {
  double seconds = 0;        // of the fastest step, of the slowest rank
  double communicating = 0;  // in sums over TP, from post to end, of a rank in a step
  std::vector<std::string> gradients;
};

Measured measure(const TrainerConfig& config, layout::ScheduleSettings settings, bool pairs, double latency_s,
                 int steps) {
  settings.pairs = pairs;
  Measured result{.gradients = std::vector<std::string>(kRanks)};
  std::vector<double> fastest(kRanks, std::numeric_limits<double>::infinity()), communicating(kRanks);
  test::run_thread_ranks(kRanks,
                         [&](core::Endpoint& endpoint) {
                           const auto own = static_cast<size_t>(endpoint.rank());
                           PipelineRank rank(endpoint, config, kManyMicrobatches);
                           rank.batch = random_batch(rank.config, 1, kManyMicrobatches, 0);
                           rank.runner.set_schedule(settings);
                           rank.step();
                           for (int step = 0; step < steps; ++step) {
                             rank.parameters->zero_grads();
                             rank.groups->tp.reset_counters();
                             rank.groups->world.barrier();
                             const int64_t start_ns = core::trace::now_ns();
                             rank.step();
                             fastest[own] =
                                 std::min(fastest[own], static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9);
                           }
                           for (const core::CommOp op : {core::CommOp::kAllreduce, core::CommOp::kReduceScatter})
                             communicating[own] += rank.groups->tp.counter(op).seconds;
                           const core::TensorView grads = rank.parameters->grads();
                           result.gradients[own].assign(reinterpret_cast<const char*>(grads.bytes()),
                                                        static_cast<size_t>(grads.size_bytes()));
                         },
                         600, {.latency_s = latency_s});
  result.seconds = *std::ranges::max_element(fastest);
  result.communicating = *std::ranges::max_element(communicating);
  return result;
}

int run(int64_t hidden, int64_t sequence, int steps) {
  const test::TemporaryFolder folder;
  for (const bool sequence_parallel : {false, true}) {
    TrainerConfig config = pipeline_config(folder, sequence_parallel, /*detached=*/false);
    config.training.global_batch_size = kManyMicrobatches;
    config.model.hidden_size = hidden;
    config.model.ffn_hidden_size = 4 * hidden;
    config.training.seq_length = config.model.max_position_embeddings = sequence;
    const layout::ScheduleSettings settings = config.schedule_settings();
    std::printf("%s, hidden %lld, %lld tokens, %lld layers\n", sequence_parallel ? "reduce-scatter" : "all-reduce",
                static_cast<long long>(hidden), static_cast<long long>(sequence), static_cast<long long>(kLayers));
    std::printf("  message (ms)  apart (s)  in sums (s)  interleaved (s)  hidden share of the sums\n");
    for (const double latency_s : {0.0, 0.5e-3, 2e-3, 8e-3}) {
      const Measured apart = measure(config, settings, false, latency_s, steps);
      const Measured together = measure(config, settings, true, latency_s, steps);
      if (apart.gradients != together.gradients) {
        std::printf("interleaving has changed gradients\n");
        return 1;
      }
      std::printf("  %12.1f %10.4f %12.4f %16.4f %24.0f %%\n", latency_s * 1e3, apart.seconds, apart.communicating,
                  together.seconds, 100 * (apart.seconds - together.seconds) / apart.communicating);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ms::train

int main(int argc, char** argv) {
  const auto number = [&](int at, long long otherwise) { return argc > at ? std::atoll(argv[at]) : otherwise; };
  return ms::train::run(number(1, 128), number(2, 256), static_cast<int>(number(3, 3)));
}
