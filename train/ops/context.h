// What every operator needs besides its tensors. Owned by the rank's state, passed by reference, never global.
#pragma once

#include "core/arena.h"
#include "core/thread_pool.h"
#include "core/trace/recorder.h"

namespace ms::ops {

struct Context {
  core::ThreadPool& pool;
  core::Arena& arena;
  core::trace::Recorder* recorder = nullptr;  // may be null
  int64_t flops = 0;                          // 2*m*n*k of every GEMM executed, forward and backward (features.md 9.3)
  bool any_threads = false;                   // no bit of a result may depend on the number of threads
};

}  // namespace ms::ops
