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
  ::mallopt(M_TRIM_THRESHOLD, kLargestBlock + static_cast<int>(rounded));  // more than the heap has free at first
  ::mallopt(M_ARENA_MAX, 1);
  // The next block that the heap does not hold extends it by as much more.
  constexpr size_t kBlock = size_t{256} << 10;
  ::mallopt(M_TOP_PAD, static_cast<int>(rounded + 2 * kHugePage));
  void* volatile block = std::malloc(kBlock);  // volatile: the compiler may not drop the pair
  std::free(block);
  ::mallopt(M_TOP_PAD, 1 << 20);
  const auto top = reinterpret_cast<uintptr_t>(block);
  // Behind the block malloc has written already, which took a small page: no huge one fits there any more.
  const uintptr_t begin = (top + kBlock + 64 + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(::sbrk(0)) / kHugePage * kHugePage;
  if (block == nullptr || end < begin + rounded || end > begin + 2 * rounded) return;  // another malloc
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  // The addresses before the first huge page: never touched, but blocks there would take up to 512 small pages.
  [[maybe_unused]] static void* volatile gap;
  gap = std::malloc(begin - top + 16);
}

}  // namespace ms::core
