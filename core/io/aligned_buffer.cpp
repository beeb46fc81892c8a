#include "core/io/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace ms::core {

AlignedBuffer::AlignedBuffer(size_t size_bytes) : size_bytes_(size_bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t rounded = (size_bytes + kHugePage - 1) / kHugePage * kHugePage;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, rounded)));
  if (data_ == nullptr) throw std::bad_alloc();
  ::madvise(data_.get(), rounded, MADV_HUGEPAGE);  // a hint
}

}  // namespace ms::core
