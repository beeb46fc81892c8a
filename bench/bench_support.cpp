#include "bench/bench_support.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "kernels/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ms::bench {
namespace {

constexpr int kChains = 12;  // more than latency (4 to 5) times ports (2)
constexpr int64_t kSteps = 4'000'000;

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double multiply_adds_avx2() {
  __m256 chains[kChains];
  for (auto& chain : chains) chain = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(0.999F), term = _mm256_set1_ps(0.001F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm256_fmadd_ps(chain, factor, term);
  }
  for (const auto& chain : chains) benchmark::DoNotOptimize(_mm256_cvtss_f32(chain));
  return 2.0 * 8 * kChains * kSteps;
}

__attribute__((target("avx512f"))) double multiply_adds_avx512() {
  __m512 chains[kChains];
  for (auto& chain : chains) chain = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(0.999F), term = _mm512_set1_ps(0.001F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm512_fmadd_ps(chain, factor, term);
  }
  for (const auto& chain : chains) benchmark::DoNotOptimize(_mm512_cvtss_f32(chain));
  return 2.0 * 16 * kChains * kSteps;
}
#endif

double multiply_adds_scalar() {
  float chains[kChains];
  for (auto& chain : chains) chain = 1.0F;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (auto& chain : chains) chain = chain * 0.999F + 0.001F;
  }
  for (auto& chain : chains) benchmark::DoNotOptimize(chain);
  return 2.0 * kChains * kSteps;
}

// CPU time: a peak is not lower because another process had the core for a while.
double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double multiply_adds() {
#if defined(__x86_64__)
  if (kernels::active_isa() == kernels::Isa::kAvx512) return multiply_adds_avx512();
  if (kernels::active_isa() == kernels::Isa::kAvx2) return multiply_adds_avx2();
#endif
  return multiply_adds_scalar();
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
      const double flops = multiply_adds();
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

}  // namespace ms::bench
