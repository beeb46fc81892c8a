#include "train/loop/ceilings.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include "core/arena.h"
#include "core/tensor.h"
#include "core/trace/recorder.h"
#include "kernels/roofline.h"

namespace ms::train {
namespace {

constexpr int kRounds = 3;
constexpr int64_t kSteps = 500'000;                  // of a few milliseconds
constexpr int64_t kStreamFloats = int64_t{1} << 24;  // 64 MiB each: beyond every cache
constexpr int64_t kStreamGrain = 1 << 16;

// Most units per nanosecond that `round`, which returns its units, has reached.
double best_rate(const std::function<double()>& round) {
  double best = 0;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t start_ns = core::trace::now_ns();
    const double units = round();
    best = std::max(best, units / static_cast<double>(core::trace::now_ns() - start_ns));
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(core::ThreadPool& pool) {
  Ceilings result;
  result.gflops = best_rate([&] {
    std::vector<double> flops(static_cast<size_t>(pool.num_threads()));
    pool.run_parts(pool.num_threads(),
                   [&](int part) { flops[static_cast<size_t>(part)] = kernels::multiply_adds(kSteps); });
    double sum = 0;
    for (const double of_thread : flops) sum += of_thread;
    return sum;
  });
  core::Arena arena;
  const auto make = [&] { return core::Tensor(arena, core::DType::kFp32, {kStreamFloats}, core::MemoryTag::kTmp); };
  const core::Tensor from = make(), to = make();
  kernels::Streams streams{};
  streams.in[0] = from.data<float>();
  streams.out[0] = to.data<float>();
  pool.parallel_for(kStreamFloats, kStreamGrain, [&](int64_t begin, int64_t end) {  // touched by who will use it
    std::fill(from.data<float>() + begin, from.data<float>() + end, 1.0F);
    std::fill(to.data<float>() + begin, to.data<float>() + end, 1.0F);
  });
  const auto stream_rate = [&](int writes, bool non_temporal) {
    const kernels::MoveStreams move = kernels::stream_mover(1, writes, non_temporal);
    return best_rate([&] {
      pool.parallel_for(kStreamFloats, kStreamGrain, [&](int64_t begin, int64_t end) { move(streams, begin, end); });
      return 4.0 * kStreamFloats * (1 + writes);
    });
  };
  result.read_gbs = stream_rate(0, false);
  result.copy_gbs = std::max(stream_rate(1, false), stream_rate(1, true));
  return result;
}

Ceilings best_of(const Ceilings& a, const Ceilings& b) {
  return {std::max(a.gflops, b.gflops), std::max(a.read_gbs, b.read_gbs), std::max(a.copy_gbs, b.copy_gbs)};
}

}  // namespace ms::train
