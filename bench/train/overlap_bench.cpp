// How much of data parallelism's communication --overlap-grad-reduce and --overlap-param-gather hide: two replicas, as
// threads, on a link that is as slow as their computation is long. Steps of the trainer's own parts, of 6 layers of
// hidden 256 with 512 tokens.
//
// hidden = (time without the switch - time with it) / min(communication, computation beside it), in percent, of the
// medians of alternated runs. Computation beside a reduction is the last backward, beside a gather the forward. Needs
// two free cores; others make it meaningless.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/median.h"
#include "core/trace/recorder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

constexpr int kSteps = 8;
constexpr int64_t kSeq = 512;

struct Switches {
  bool reduces = false, gathers = false;
};

TrainerConfig configured(const test::TemporaryFolder& folder, const Switches& on) {
  TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, true});
  config.model.num_layers = 6;
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 1024;
  config.model.kv_channels = 32;
  config.model.max_position_embeddings = kSeq;
  config.training.seq_length = kSeq;
  config.training.global_batch_size = 2;
  config.parallel.overlap_grad_reduce = on.reduces;
  config.parallel.overlap_param_gather = on.gathers;
  if (on.reduces) config.parallel.ddp_num_buckets = 12;
  return config;
}

Microbatch random_microbatch() {
  Microbatch microbatch;
  microbatch.batch = 1, microbatch.seq = kSeq;
  int32_t draw = 1;
  for (int64_t i = 0; i < kSeq; ++i) {
    microbatch.tokens.push_back(draw = draw * 37 % 257);
    microbatch.labels.push_back((draw * 53 + 1) % 257);
  }
  microbatch.loss_mask.assign(kSeq, 1.0F);
  microbatch.samples = {0};
  return microbatch;
}

struct Times {
  double step = 0, forward = 0, backward = 0;  // seconds, medians
};

class Clock : public ActionObserver {
 public:
  void begins(std::span<const layout::ScheduleAction> /*actions*/) override { begin_ = core::trace::now_ns(); }
  void ends(std::span<const layout::ScheduleAction> actions) override {
    const double seconds = static_cast<double>(core::trace::now_ns() - begin_) * 1e-9;
    (actions[0].kind == layout::ScheduleAction::kForward ? forward : backward).push_back(seconds);
  }
  std::vector<double> forward, backward;

 private:
  int64_t begin_ = 0;
};

Times times_of(const Switches& on, core::LinkDelay link) {
  Times times;
  const test::TemporaryFolder folder;
  const TrainerConfig config = configured(folder, on);
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        Rank rank(endpoint, config);
        Optimizer optimizer(*rank.state, *rank.parameters);
        GptStage stage(*rank.state, *rank.parameters);
        optimizer.follow(stage);
        StepRunner runner(*rank.state, stage);
        rank.parameters->initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
          optimizer.set_master(parameter, values);
        });
        const std::vector<Microbatch> batch = {random_microbatch()};
        Clock clock;
        runner.set_observer(&clock);
        std::vector<double> steps;
        for (int64_t step = 1; step <= kSteps; ++step) {
          const int64_t begin = core::trace::now_ns();
          rank.parameters->zero_grads();
          const BatchResult result = runner.train(batch, 1);
          const double norm = optimizer.finish_gradients(result.grad_scale);
          optimizer.update({.lr = 1e-3, .step = step, .grad_scale = result.grad_scale, .grad_norm = norm});
          steps.push_back(static_cast<double>(core::trace::now_ns() - begin) * 1e-9);
        }
        optimizer.await_weights();
        if (endpoint.rank() == 0) {
          times = {bench::median(steps), bench::median(clock.forward), bench::median(clock.backward)};
        }
      },
      60, link);
  return times;
}

// bytes_per_s: of the link; the buffers have 4 bytes an element, of which half is sent.
void hidden_share(benchmark::State& state, const Switches& without, const Switches& with) {
  const Times alone = times_of({}, {});
  const test::TemporaryFolder folder;
  const double beside = with.gathers ? alone.forward : alone.backward;
  constexpr double kSentBytes = 6 * (256.0 * (256 + 128 + 256 + 2 * 1024 + 1024)) * 4 / 2;
  const core::LinkDelay link{.latency_s = 1e-4, .bytes_per_s = kSentBytes / beside};
  std::vector<double> off, on;
  for (auto _ : state) {
    off.push_back(times_of(without, link).step);
    on.push_back(times_of(with, link).step);
    state.SetIterationTime(on.back());
  }
  const double t_off = bench::median(off), t_on = bench::median(on);
  state.counters["step_off_ms"] = t_off * 1e3;
  state.counters["step_on_ms"] = t_on * 1e3;
  state.counters["hidden_percent"] = 100 * (t_off - t_on) / beside;
}

void reduction(benchmark::State& state) { hidden_share(state, {}, {.reduces = true}); }
void gather(benchmark::State& state) { hidden_share(state, {.reduces = true}, {.reduces = true, .gathers = true}); }

BENCHMARK(reduction)->Name("overlap_grad_reduce/dp:2")->Iterations(5)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(gather)->Name("overlap_param_gather/dp:2")->Iterations(5)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ms::train

BENCHMARK_MAIN();
