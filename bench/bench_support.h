// Shapes of real models, and this machine's measured peak: a benchmark reports its share of it.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ms::bench {

// bench/shapes/<name>.json
nlohmann::json shapes(const std::string& name);

// GFLOP/s of fused multiply-adds on registers, one thread, with the active instruction set; measured at the first call.
double peak_gflops();

// Reports GFLOP/s and percent of `threads` times the peak. flops: of one iteration.
void report_flops(benchmark::State& state, double flops, int threads = 1);

// Times `work`, of `flops` on one thread, in turns with as many FLOPs of multiply-adds on registers, for a benchmark
// that UseManualTime. Reports GFLOP/s and percent of that peak, also where the machine's speed changes within seconds.
void report_flops_in_turns(benchmark::State& state, double flops, const std::function<void()>& work);

// Times `work` and `reference` in turns, for a benchmark that UseManualTime; returns the median of reference's time
// over work's.
double in_turns(benchmark::State& state, const std::function<void()>& work, const std::function<void()>& reference);
// The same of several references, a ratio for each.
std::vector<double> in_turns(benchmark::State& state, const std::function<void()>& work,
                             const std::vector<std::function<void()>>& references);

}  // namespace ms::bench
