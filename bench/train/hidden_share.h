// What share of their communication overlapping switches hide.
//
// hidden = (what a slow link adds to a step without the switch - what it adds with it) / the most that could be hidden,
// in percent, of medians of steps; the most is min(communication, computation beside it), which a case says. The
// reductions' own arithmetic and copies, which take as long without a link, are no communication. Operators take times
// that were measured before, the same with the switch as without (timed_operators.h). late_percent is by how much of a
// step some took longer all the same: repeat a case if it is more than a few. Needs two free cores.
#pragma once

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <functional>

#include "bench/train/timed_operators.h"
#include "core/comm/delayed_transport.h"
#include "train/loop/step.h"

namespace ms::bench {

constexpr int kCountedSteps = 6;

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

// A step of a rank, observed.
using Step = std::function<void(ops::OperatorObserver&, train::ActionObserver*)>;
// The arguments must outlive it.
inline Step observed(ops::Context& context, train::StepRunner& runner, const std::function<void()>& run_step) {
  return [&](ops::OperatorObserver& operators, train::ActionObserver* actions) {
    context.observer = &operators;
    runner.set_observer(actions);
    run_step();
    context.observer = nullptr;
    runner.set_observer(nullptr);
  };
}

// Runs body(rank, step) on the ranks of a run, with the switch or without, after a step that allocates.
using Run = std::function<void(bool on, core::LinkDelay link, const std::function<void(int rank, const Step&)>& body)>;

inline OperatorPace measured_pace(const Run& run) {
  constexpr double kSlack = 2;  // so that few calls are late
  OperatorPace pace;
  for (const bool on : {false, true}) {
    run(on, {}, [&](int rank, const Step& step) {
      PaceObserver observer;
      for (int i = 0; i < kCountedSteps; ++i) step(observer, nullptr);
      if (rank == 0) observer.raise(pace, kSlack);
    });
  }
  return pace;
}

struct StepTimes {                 // medians
  double seconds = 0, beside = 0;  // of what a case is about; computation beside its communication
  double late_share = 0;           // TimedOperators::late_ns, of a step
};

// times_of(on, link); near: without switch and link; most(communication, computation beside it): seconds.
template <class TimesOf, class Most>
void report_hidden_share(benchmark::State& state, const StepTimes& near, core::LinkDelay link, const TimesOf& times_of,
                         const Most& most) {
  for (auto _ : state) {
    const StepTimes on_near = times_of(true, core::LinkDelay{}), off = times_of(false, link), on = times_of(true, link);
    const double communication = off.seconds - near.seconds, exposed = on.seconds - on_near.seconds;
    state.SetIterationTime(on.seconds);
    state.counters["off_ms"] = off.seconds * 1e3;
    state.counters["communication_ms"] = communication * 1e3;
    state.counters["exposed_ms"] = exposed * 1e3;
    state.counters["beside_ms"] = near.beside * 1e3;
    state.counters["hidden_percent"] = 100 * (communication - exposed) / most(communication, near.beside);
    state.counters["late_percent"] =
        100 * std::max({near.late_share, on_near.late_share, off.late_share, on.late_share});
  }
}

// One benchmark a case, of its `name`; measure(state, case) says its time itself.
template <class Cases, class Measure>
void run_hidden_shares(int argc, char** argv, const Cases& cases, const Measure& measure) {
  benchmark::Initialize(&argc, argv);
  for (const auto& of : cases) {
    benchmark::RegisterBenchmark(of.name, [&](benchmark::State& state) { measure(state, of); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace ms::bench
