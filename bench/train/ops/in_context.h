// Benchmarks of operators: <group>/<operator>/threads:<n>, on one and two threads, in real time.
#pragma once

#include <span>

#include "bench/bench_support.h"
#include "train/ops/context.h"

namespace ms::ops {

struct NamedBench {
  const char* name;
  void (*run)(benchmark::State&, Context&);
};

inline void register_in_context(const char* group, std::span<const NamedBench> benches) {
  for (const NamedBench& named : benches) {
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(core::cat(group, "/", named.name, "/threads:", threads).c_str(),
                                   [=](benchmark::State& state) {
                                     core::ThreadPool pool(threads);
                                     core::Arena arena;
                                     Context context{pool, arena};
                                     named.run(state, context);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(9);
    }
  }
}

}  // namespace ms::ops
