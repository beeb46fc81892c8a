#include "tests/support/heap_count.h"

#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MS_COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MS_COUNTS_MALLOC 0
#endif
#endif
#ifndef MS_COUNTS_MALLOC
#define MS_COUNTS_MALLOC 1
#endif

namespace {

struct CodeRange {
  uintptr_t begin = 0, end = 0;
};

// Address range of libdnnl; empty if the program does not load it, or before the first count.
std::atomic<uintptr_t> onednn_begin{0}, onednn_end{0};

std::atomic<int64_t> our_blocks{0}, onednn_blocks{0};
std::atomic<size_t> our_largest{0};

void count(size_t size, const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at >= onednn_begin.load(std::memory_order_relaxed) && at < onednn_end.load(std::memory_order_relaxed)) {
    onednn_blocks.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  our_blocks.fetch_add(1, std::memory_order_relaxed);
  size_t seen = our_largest.load(std::memory_order_relaxed);
  while (size > seen && !our_largest.compare_exchange_weak(seen, size, std::memory_order_relaxed)) {
  }
}

int find_onednn(dl_phdr_info* object, size_t, void* found) {
  if (std::strstr(object->dlpi_name, "libdnnl") == nullptr) return 0;
  auto& range = *static_cast<CodeRange*>(found);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    range.begin = object->dlpi_addr + part.p_vaddr;
    range.end = range.begin + part.p_memsz;
  }
  return 1;
}

}  // namespace

#if MS_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) noexcept {
  count(size, __builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) noexcept {
  count(number * size, __builtin_return_address(0));
  return __libc_calloc(number, size);
}
void* realloc(void* block, size_t size) noexcept {
  count(size, __builtin_return_address(0));
  return __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  count(size, __builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  count(size, __builtin_return_address(0));
  *block = __libc_memalign(alignment, size);
  return *block != nullptr ? 0 : ENOMEM;
}
}
#define MS_PLAIN_MALLOC __libc_malloc
#else
#define MS_PLAIN_MALLOC std::malloc
#endif

// Otherwise the caller would be libstdc++. Not inlined: GCC 12 reports an inlined new or delete as mismatched.
__attribute__((noinline)) void* operator new(size_t size) {
  count(size, __builtin_return_address(0));
  if (void* block = MS_PLAIN_MALLOC(size)) return block;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* block) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace ms::test {

HeapCount take_heap_count() {
  if (onednn_end == 0) {
    CodeRange range;
    dl_iterate_phdr(find_onednn, &range);
    onednn_begin = range.begin;
    onednn_end = range.end;
  }
  return {our_blocks.exchange(0), our_largest.exchange(0), onednn_blocks.exchange(0)};
}

}  // namespace ms::test
