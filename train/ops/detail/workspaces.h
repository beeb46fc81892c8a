// Workspaces of the threads of one parallel region, taken from the arena before it: threads that each took and returned
// their own would need as many blocks as happened to overlap, so that a later step could ask the system for one more.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops::detail {

class Workspaces {
 public:
  // One of `floats` for each part of a parallel_for over `tasks` with a grain of 1.
  Workspaces(Context& context, int64_t tasks, int64_t floats)
      : floats_((floats + 15) / 16 * 16),
        all_(context.arena, core::DType::kFp32, {std::min<int64_t>(tasks, context.pool.num_threads()), floats_},
             core::MemoryTag::kTmp) {}

  // Another one; at most once in a part. 64-byte aligned, its content unspecified.
  float* take() { return all_.data<float>() + floats_ * taken_.fetch_add(1, std::memory_order_relaxed); }

 private:
  int64_t floats_;
  core::Tensor all_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace ms::ops::detail
