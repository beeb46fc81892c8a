#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace ms::core {
namespace {

TEST(ThreadPool, ParallelForCoversTheRangeOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {1, 8, 2000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        std::atomic<int> parts{0};
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          ++parts;
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) EXPECT_EQ(hit, 1);
        EXPECT_LE(parts, threads);
      }
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int bad = 0; bad < 3; ++bad) {
    EXPECT_THROW(pool.run_parts(3,
                                [&](int part) {
                                  if (part == bad) throw std::runtime_error("x");
                                }),
                 std::runtime_error);
  }
  std::atomic<int> sum{0};
  pool.run_parts(10, [&](int part) { sum += part; });
  EXPECT_EQ(sum, 45);
}

}  // namespace
}  // namespace ms::core
