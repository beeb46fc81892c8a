// Measures what a span costs the recording thread, in addition to the two clock reads that it needs anyway.
//
//   bench.core.trace.span [flags of Google Benchmark]
//
// Cases: clock/two_reads (of CLOCK_MONOTONIC), clock/two_time_stamps, span/off (10^8 of them), span/<level>[/with_cpu].
// Spans come in bursts with pauses in which the writer drains them, as in a training step; only the bursts are timed.
// Each case checks that its spans are in the file. bench/train/profile_cost.py takes the minimum of many repetitions
// and compares.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "bench/bench_support.h"
#include "core/error.h"
#include "core/trace/span.h"

namespace ms::core::trace {
namespace {

constexpr int kBurst = 1000, kBursts = 8;
constexpr auto kPause = std::chrono::milliseconds(25);  // longer than the writer's period
constexpr std::string_view kNames[] = {"gemm", "rms_norm_forward", "rope_forward", "flash_attention_forward", "swiglu"};

void report(benchmark::State& state, double spans) {
  state.counters["ns"] =
      benchmark::Counter(spans * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void two_clock_reads(benchmark::State& state) {
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) {
      benchmark::DoNotOptimize(now_ns());
      benchmark::DoNotOptimize(now_ns());
    }
  }
  report(state, kBurst);
}
BENCHMARK(two_clock_reads)->Name("clock/two_reads");

void two_time_stamps(benchmark::State& state) {
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) {
      benchmark::DoNotOptimize(time_stamp());
      benchmark::DoNotOptimize(time_stamp());
    }
  }
  report(state, kBurst);
}
BENCHMARK(two_time_stamps)->Name("clock/two_time_stamps");

void off(benchmark::State& state) {
  Recorder recorder;
  Recorder* pointer = &recorder;
  for (auto _ : state) {
    for (int i = 0; i < 100'000'000; ++i) {
      benchmark::DoNotOptimize(pointer);
      const Span span(pointer, Category::kKernel, kNames[0], 640, 128);
    }
  }
  report(state, 1e8);
}
BENCHMARK(off)->Name("span/off")->Iterations(1);

void on(benchmark::State& state, Level level, bool with_cpu) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("ms_span_bench." + std::to_string(::getpid()));
  Options options;
  options.level = level;
  options.with_cpu = with_cpu;
  options.save_path = folder.string();
  Recorder recorder;
  recorder.start(options);
  for (auto _ : state) {
    double seconds = 1;
    for (int burst = 0; burst < kBursts; ++burst) {
      std::this_thread::sleep_for(kPause);
      const int64_t start_ns = now_ns();
      for (int i = 0; i < kBurst; ++i) {
        const Span span(&recorder, Category::kKernel, kNames[i % 5], 640 * i, 128);
      }
      seconds = std::min(seconds, static_cast<double>(now_ns() - start_ns) * 1e-9);
    }
    state.SetIterationTime(seconds);
  }
  recorder.stop();
  const auto size = static_cast<double>(std::filesystem::file_size(recorder.path()));
  std::filesystem::remove_all(folder);
  const auto spans = static_cast<double>(state.iterations()) * kBursts * kBurst;
  if (size < spans / 4) state.SkipWithError("spans are missing in the file");
  state.counters["bytes_on_disk"] = size / spans;
  report(state, kBurst);
}
BENCHMARK_CAPTURE(on, level0, Level::kLevel0, false)->Name("span/level0")->UseManualTime()->Iterations(1);
BENCHMARK_CAPTURE(on, level1, Level::kLevel1, false)->Name("span/level1")->UseManualTime()->Iterations(1);
BENCHMARK_CAPTURE(on, level2, Level::kLevel2, false)->Name("span/level2")->UseManualTime()->Iterations(1);
BENCHMARK_CAPTURE(on, level2_cpu, Level::kLevel2, true)->Name("span/level2/with_cpu")->UseManualTime()->Iterations(1);

}  // namespace
}  // namespace ms::core::trace

BENCHMARK_MAIN();
