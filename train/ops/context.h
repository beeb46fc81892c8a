// What every operator needs besides its tensors: threads, memory, trace. Owned by the rank's state, passed by
// reference, never global.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/sharded_tensor.h"
#include "core/thread_pool.h"
#include "core/trace/recorder.h"

namespace ms::ops {

// Notified of every operator that has run, on the thread that called it.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // name: as in a trace ("rms_norm"). inputs: shapes. flops: -1 when not counted; bytes: read and written.
  virtual void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t flops, int64_t bytes,
                           int64_t dur_ns) = 0;
};

struct Context {
  core::ThreadPool& pool;
  core::Arena& arena;
  core::trace::Recorder* recorder = nullptr;  // may be null
  int64_t flops = 0;                          // 2*m*n*k of every GEMM executed, forward and backward
  bool deterministic = false;                 // results must not depend on the number of threads (--deterministic)
  OperatorObserver* observer = nullptr;       // may be null; not owned
};

}  // namespace ms::ops
