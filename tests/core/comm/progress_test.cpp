// Messages move while a rank computes: kernels call back between their panels.
#include "kernels/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/comm/communicator.h"
#include "kernels/attention.h"
#include "kernels/gemm/gemm.h"
#include "kernels/isa.h"
#include "tests/support/thread_comm.h"

namespace ms {
namespace {

void multiply(int64_t m, int64_t n, int64_t k) {
  std::vector<float> a(static_cast<size_t>(m * k), 1.0F), b(static_cast<size_t>(k * n), 1.0F),
      c(static_cast<size_t>(m * n));
  kernels::gemm({.m = m, .n = n, .k = k, .a = a.data(), .lda = k, .b = b.data(), .ldb = n, .c = c.data(), .ldc = n});
}

int calls_during(const std::function<void()>& kernel) {
  int calls = 0;
  const kernels::ProgressScope scope([](void* count) { ++*static_cast<int*>(count); }, &calls);
  kernel();
  return calls;
}

TEST(Progress, KernelsCallBack) {
  if (kernels::active_isa() == kernels::Isa::kScalar) GTEST_SKIP() << "products are not in panels";
  EXPECT_GT(calls_during([] { multiply(512, 512, 512); }), 1);
  EXPECT_EQ(calls_during([] {}), 0);
  int outer = 0, inner = 0;
  const auto count = [](void* calls) { ++*static_cast<int*>(calls); };
  const kernels::ProgressScope first(count, &outer);
  {
    const kernels::ProgressScope second(count, &inner);
    multiply(512, 512, 512);
  }
  EXPECT_EQ(outer, 0);
  EXPECT_GT(inner, 0);
  multiply(512, 512, 512);
  EXPECT_GT(outer, 0);
}

// A large all-reduce, posted before products and not waited for, has several phases: without progress it stops after
// the first.
TEST(Progress, AnAllreduceEndsDuringProducts) {
  if (kernels::active_isa() == kernels::Isa::kScalar) GTEST_SKIP() << "products are not in panels";
  for (const bool with_progress : {false, true}) {
    int64_t done = 0;
    std::atomic<bool> posted{false};  // by rank 0, which so finds nothing of rank 1 while it posts
    test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
      core::Communicator world(endpoint, "world", {0, 1}, 0);
      std::vector<float> data(6 * core::kReductionChunkBytes / sizeof(float), 1.0F);
      const core::TensorView view(data.data(), core::DType::kFp32, {static_cast<int64_t>(data.size())});
      while (endpoint.rank() == 1 && !posted) std::this_thread::yield();
      core::Work work = world.iallreduce(view);
      if (endpoint.rank() == 0) posted = true;
      if (endpoint.rank() == 1) {
        if (with_progress) work.wait();
        world.barrier();
        return;
      }
      const auto products = [&] {
        for (int i = 0; i < (with_progress ? 10'000 : 20); ++i) {
          multiply(256, 256, 256);
          done = world.counter(core::CommOp::kAllreduce).seconds > 0 ? 1 : 0;  // counted when it is complete
          if (done > 0) return;
        }
      };
      if (with_progress) {
        const kernels::ProgressScope scope(
            [](void* end) { static_cast<core::Endpoint*>(end)->progress_within_kernel(); }, &endpoint);
        products();
      } else {
        products();
      }
      work.wait();
      world.barrier();
    });
    EXPECT_EQ(done, with_progress ? 1 : 0);
  }
}

}  // namespace
}  // namespace ms
