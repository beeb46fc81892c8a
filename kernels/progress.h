// Work that cannot wait until a long kernel ends: kernels call back between panels of GEMM and blocks of attention, so
// that messages, which move only when somebody asks for them, move meanwhile.
#pragma once

#include <cstdint>

namespace ms::kernels {

using ProgressCallback = void (*)(void* argument);

// While it exists, kernels of this thread call callback(argument), at most every 50 us. The callback may not call a
// kernel that calls back; its exceptions leave the kernel. Scopes may be nested: the innermost one counts.
class ProgressScope {
 public:
  ProgressScope(ProgressCallback callback, void* argument);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  ProgressCallback outer_callback_;
  void* outer_argument_;
};

namespace detail {
extern constinit thread_local ProgressCallback progress_callback;
void make_progress();
}  // namespace detail

// Called by kernels.
inline void poll_progress() {
  if (detail::progress_callback != nullptr) detail::make_progress();
}

}  // namespace ms::kernels
