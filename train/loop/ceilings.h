// What the threads of this rank reach at most, in FLOP/s and bytes/s (kernels/roofline.h): the reference of
// --benchmark.
#pragma once

#include "core/thread_pool.h"

namespace ms::train {

struct Ceilings {
  double gflops = 0;    // fp32 multiply-adds on registers
  double read_gbs = 0;  // memory, GB/s
  double copy_gbs = 0;  // read and written bytes
  double gbs() const { return read_gbs > copy_gbs ? read_gbs : copy_gbs; }
};

// Best of a few rounds of each on all threads of the pool, in real time; takes some 0.2 s, and 128 MiB while it runs.
Ceilings measure_ceilings(core::ThreadPool& pool);

// The better of two measurements.
Ceilings best_of(const Ceilings& a, const Ceilings& b);

}  // namespace ms::train
