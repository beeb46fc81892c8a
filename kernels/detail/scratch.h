// Per-thread scratch memory for the duration of a kernel call: grown on demand, never shared, never zeroed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace ms::kernels {

class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ~ScratchBuffer() { std::free(data_); }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  // Room for n floats, 64-byte aligned; previous contents may be lost. Throws std::bad_alloc.
  float* floats(int64_t n) {
    const size_t bytes = (static_cast<size_t>(n) * sizeof(float) + 63) / 64 * 64;
    if (bytes > capacity_) {
      std::free(data_);
      const bool large = bytes >= kHugePage;
      capacity_ = large ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes;
      data_ = std::aligned_alloc(large ? kHugePage : 64, capacity_);
      if (data_ == nullptr) {
        capacity_ = 0;
        throw std::bad_alloc();
      }
      if (large) ::madvise(data_, capacity_, MADV_HUGEPAGE);  // only a hint
    }
    return static_cast<float*>(data_);
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  void* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace ms::kernels
