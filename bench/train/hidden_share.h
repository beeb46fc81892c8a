// Runs benchmarks that measure what share of their communication overlapping switches hide.
#pragma once

#include <benchmark/benchmark.h>

namespace ms::bench {

// One benchmark a case, of its `name`; measure(state, case) says its time itself.
template <class Cases, class Measure>
void run_hidden_shares(int argc, char** argv, const Cases& cases, int iterations, const Measure& measure) {
  benchmark::Initialize(&argc, argv);
  for (const auto& of : cases) {
    benchmark::RegisterBenchmark(of.name, [&](benchmark::State& state) { measure(state, of); })
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace ms::bench
