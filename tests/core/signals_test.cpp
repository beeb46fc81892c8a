// Signals during a product must not change its result.
#include "core/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace ms::core {
namespace {

TEST(Signals, CountedSignalsDoNotChangeProducts) {
  const SignalStack stack;
  count_signal(SIGUSR2);
  std::atomic<bool> over{false};
  int64_t sent = 0;
  const int64_t rows = 16, inner = 272, columns = 16;
  const auto product = [&](const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c) {
    kernels::GemmProblem problem;
    problem.transpose_b = true;
    problem.m = rows;
    problem.n = columns;
    problem.k = inner;
    problem.a = a.data();
    problem.lda = inner;
    problem.b = b.data();
    problem.ldb = inner;
    problem.c = c.data();
    problem.ldc = columns;
    kernels::gemm(problem);
  };
  std::atomic<int> wrong{0};
  ThreadPool pool(2);
  std::thread sender([&] {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
         std::chrono::steady_clock::now() < end; ++sent) {
      ::kill(::getpid(), SIGUSR2);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    over = true;
  });
  pool.run_parts(2, [&](int part) {
    std::vector<float> a(static_cast<size_t>(rows * inner)), b(static_cast<size_t>(columns * inner));
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7 + static_cast<size_t>(part));
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5);
    std::vector<float> first(static_cast<size_t>(rows * columns)), again(first.size());
    product(a, b, first);
    while (!over) {
      product(a, b, again);
      if (again != first) ++wrong;
    }
  });
  sender.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(counted_signals(), 0);
  EXPECT_LE(counted_signals(), sent);
}

// A launcher signals both a process and its group: that is one request to terminate.
TEST(Signals, RepeatedInterruptWithinGracePeriodIsIgnored) {
  const pid_t child = ::fork();
  if (child == 0) {
    install_termination_handlers();
    std::raise(SIGINT);
    std::raise(SIGINT);
    if (termination_signal() != SIGINT) ::_exit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    std::raise(SIGINT);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

}  // namespace
}  // namespace ms::core
