// What benchmarks share that measure what share of their communication overlapping switches hide.
#pragma once

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include <barrier>
#include <cstddef>

namespace ms::bench {

// Binds the calling thread to one of the CPUs that it may use, the number-th from 0, if there are so many. Without it
// the kernel may leave two ranks on one CPU for milliseconds (core/affinity.h).
inline void use_cpu(int number) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || number-- > 0) continue;
    CPU_SET(cpu, &one);
    ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
    return;
  }
}

// Runs sets of thread ranks in turns within one process, so that a change of the machine's speed, which may come every
// few seconds, is common to what is compared.
class Turns {
 public:
  Turns(int sets, int ranks) : sets_(sets), barrier_(std::ptrdiff_t{sets} * ranks) {}

  // Of each rank of a set, while it takes part. All ranks of all sets call take() as often; one that ends earlier, with
  // an error, is waited for no longer.
  class Seat {
   public:
    Seat(Turns& turns, int set) : turns_(turns), set_(set) {}
    ~Seat() { turns_.barrier_.arrive_and_drop(); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;
    template <class Body>
    void take(const Body& body) {
      for (int turn = 0; turn < turns_.sets_; ++turn) {
        if (turn == set_) body();
        turns_.barrier_.arrive_and_wait();
      }
    }

   private:
    Turns& turns_;
    int set_;
  };

 private:
  int sets_;
  std::barrier<> barrier_;
};

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
