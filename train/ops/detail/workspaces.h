// Workspaces for the threads of one parallel region, allocated from the arena before it. If each thread allocated and
// freed its own, the number of blocks would depend on how they overlap in time, and a later step could need one more
// from the system.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops::detail {

class Workspaces {
 public:
  // One workspace of `floats` elements for each part of a parallel_for over `tasks` with a grain of 1.
  Workspaces(Context& context, int64_t tasks, int64_t floats)
      : floats_((floats + 15) / 16 * 16),
        all_(context.arena, core::DType::kFp32, {std::min<int64_t>(tasks, context.pool.num_threads()), floats_},
             core::MemoryTag::kTmp) {}

  // Returns an unused workspace; call at most once per part. 64-byte aligned, contents unspecified.
  float* take() { return all_.data<float>() + floats_ * taken_.fetch_add(1, std::memory_order_relaxed); }

 private:
  int64_t floats_;
  core::Tensor all_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace ms::ops::detail
