#include "train/ops/progress_in_kernels.h"

#include <gtest/gtest.h>

#include "tests/support/thread_comm.h"

namespace ms::ops {
namespace {

bool kernels_call_back() { return kernels::detail::progress_callback != nullptr; }

// That a message then moves: tests/core/comm/progress_test.cpp.
TEST(ProgressInKernels, LastsAsLongAsTheScope) {
  test::run_thread_ranks(2, [](core::Endpoint& endpoint) {
    EXPECT_FALSE(kernels_call_back());
    {
      const ProgressInKernels progress(endpoint);
      EXPECT_TRUE(kernels_call_back());
      kernels::poll_progress();
    }
    EXPECT_FALSE(kernels_call_back());
  });
}

TEST(ProgressInKernels, DoesNothingForOneRank) {
  test::run_thread_ranks(1, [](core::Endpoint& endpoint) {
    const ProgressInKernels progress(endpoint);
    EXPECT_FALSE(kernels_call_back());
  });
}

}  // namespace
}  // namespace ms::ops
