#include "kernels/progress.h"

#include <chrono>

namespace ms::kernels {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kInterval = std::chrono::microseconds(50);

constinit thread_local void* progress_argument = nullptr;
constinit thread_local Clock::time_point last_call;

}  // namespace

namespace detail {

constinit thread_local ProgressCallback progress_callback = nullptr;

void make_progress() {
  const Clock::time_point now = Clock::now();
  if (now - last_call < kInterval) return;
  progress_callback(progress_argument);
  last_call = Clock::now();
}

}  // namespace detail

ProgressScope::ProgressScope(ProgressCallback callback, void* argument)
    : outer_callback_(detail::progress_callback), outer_argument_(progress_argument) {
  detail::progress_callback = callback;
  progress_argument = argument;
}

ProgressScope::~ProgressScope() {
  detail::progress_callback = outer_callback_;
  progress_argument = outer_argument_;
}

}  // namespace ms::kernels
