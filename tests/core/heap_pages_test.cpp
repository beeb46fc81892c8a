// The heap after use_huge_pages_for_heap(). It changes the process: the only test of its program.
#include "core/heap_pages.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ms::core {
namespace {

int64_t page_faults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

bool has_huge_pages() {
  std::string modes;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), modes);
  return modes.find("[madvise]") != std::string::npos || modes.find("[always]") != std::string::npos;
}

TEST(HeapPages, BlocksOfAllThreadsTakeOnePageFaultFor2MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has its own heap";
#endif
  if (!has_huge_pages()) GTEST_SKIP() << "this machine has no transparent huge pages";
  use_huge_pages_for_heap(int64_t{32} << 20);
  // The first blocks, wherever the heap began. They would take 256 small pages.
  const int64_t at_first = page_faults();
  std::vector<void*> pieces;
  for (int i = 0; i < 16; ++i) {
    pieces.push_back(std::malloc(size_t{64} << 10));
    std::memset(pieces.back(), 1, size_t{64} << 10);
  }
  EXPECT_LT(page_faults() - at_first, 128);
  for (void* piece : pieces) std::free(piece);
  void* const end = ::sbrk(0);
  void* volatile large = std::malloc(size_t{1} << 20);
  std::free(large);
  EXPECT_EQ(::sbrk(0), end) << "a free block must not give the heap back";
  constexpr size_t kBlock = size_t{8} << 20;
  std::thread([&] {
    const int64_t before = page_faults();
    void* volatile block = std::malloc(kBlock);
    std::memset(block, 1, kBlock);
    // 2048 small pages, or 5 huge ones. Half, because the kernel may be short of huge pages.
    EXPECT_LT(page_faults() - before, 1024);
    std::free(block);
  }).join();
}

}  // namespace
}  // namespace ms::core
