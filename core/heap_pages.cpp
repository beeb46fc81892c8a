#include "core/heap_pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace ms::core {

void use_huge_pages_for_heap(int64_t size_bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  constexpr int kLargestBlock = 32 << 20;  // the most that glibc takes for M_MMAP_THRESHOLD
  const auto rounded = (static_cast<uintptr_t>(size_bytes) + kHugePage - 1) / kHugePage * kHugePage;
  ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  ::mallopt(M_TRIM_THRESHOLD, kLargestBlock);
  ::mallopt(M_ARENA_MAX, 1);
  // The next block that the heap does not hold extends it by as much more.
  ::mallopt(M_TOP_PAD, static_cast<int>(rounded));
  void* volatile block = std::malloc(size_t{1} << 20);  // volatile: the compiler may not drop the pair
  std::free(block);
  ::mallopt(M_TOP_PAD, 1 << 20);
  const auto end = reinterpret_cast<uintptr_t>(::sbrk(0)) / kHugePage * kHugePage;
  if (block == nullptr || end < rounded) return;
  ::madvise(reinterpret_cast<void*>(end - rounded + kHugePage), rounded - kHugePage, MADV_HUGEPAGE);
}

}  // namespace ms::core
