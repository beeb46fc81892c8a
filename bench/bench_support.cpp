#include "bench/bench_support.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bench/median.h"
#include "kernels/roofline.h"

namespace ms::bench {
namespace {

constexpr int64_t kSteps = 4'000'000;

// CPU time: a peak is not lower because another process had the core for a while.
double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

nlohmann::json shapes(const std::string& name) {
  const std::string path = std::string(MS_BENCH_SHAPES) + "/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return nlohmann::json::parse(file);
}

double peak_gflops() {
  static const double peak = [] {
    double best = 0;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double start_s = thread_cpu_s();
      const double flops = kernels::multiply_adds(kSteps);
      best = std::max(best, flops / (thread_cpu_s() - start_s));
    }
    return best * 1e-9;
  }();
  return peak;
}

void report_flops(benchmark::State& state, double flops, int threads) {
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, rate);
  state.counters["%peak"] = benchmark::Counter(100 * flops * 1e-9 / (peak_gflops() * threads), rate);
}

void report_flops_in_turns(benchmark::State& state, double flops, const std::function<void()>& work) {
  const double flops_of_step = kernels::multiply_adds(1);
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(flops / flops_of_step));
  const double share = in_turns(state, work, [&] { benchmark::DoNotOptimize(kernels::multiply_adds(steps)); });
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["%peak"] = 100 * share * flops / (static_cast<double>(steps) * flops_of_step);
}

double in_turns(benchmark::State& state, const std::function<void()>& work, const std::function<void()>& reference) {
  return in_turns(state, work, std::vector<std::function<void()>>{reference})[0];
}

std::vector<double> in_turns(benchmark::State& state, const std::function<void()>& work,
                             const std::vector<std::function<void()>>& references) {
  const auto seconds = [](const std::function<void()>& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<std::vector<double>> ratios(references.size());
  for (auto _ : state) {
    std::vector<double> others;
    for (const auto& reference : references) others.push_back(seconds(reference));
    const double ours = seconds(work);
    state.SetIterationTime(ours);
    for (size_t i = 0; i < others.size(); ++i) ratios[i].push_back(others[i] / ours);
  }
  std::vector<double> medians;
  for (const auto& of_one : ratios) medians.push_back(median(of_one));
  return medians;
}

}  // namespace ms::bench
