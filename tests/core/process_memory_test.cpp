#include "core/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/heap_count.h"

namespace ms::core {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSlack = kMiB;  // pages that the kernel has not counted yet, a few per core

// Mapped memory, not resident until touched.
class Pages {
 public:
  explicit Pages(int64_t size_bytes)
      : size_(static_cast<size_t>(size_bytes)),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { ::munmap(data_, size_); }
  Pages(const Pages&) = delete;

  void touch() {
    for (size_t at = 0; at < size_; at += 4096) *const_cast<volatile std::byte*>(data_ + at) = std::byte{1};
  }

 private:
  size_t size_;
  std::byte* data_;
};

TEST(ProcessMemory, PeakRisesWithTouchedPagesAndNeverFalls) {
  const int64_t before = peak_resident_bytes();
  ASSERT_GT(before, kMiB) << "the running program is resident";
  int64_t touched = 0;
  {
    Pages pages(64 * kMiB);
    EXPECT_LT(peak_resident_bytes(), before + 32 * kMiB) << "not touched yet";
    pages.touch();
    touched = peak_resident_bytes();
    EXPECT_GT(touched, before + 56 * kMiB) << "some pages may have been freed before";
    EXPECT_LT(touched, before + 96 * kMiB);
  }
  EXPECT_GT(peak_resident_bytes(), touched - kSlack) << "unmapped";
  {
    Pages fewer(16 * kMiB);
    fewer.touch();
    EXPECT_LT(peak_resident_bytes(), touched + kSlack) << "less than the earlier peak";
  }
  Pages more(128 * kMiB);
  more.touch();
  EXPECT_GT(peak_resident_bytes(), touched + 48 * kMiB);
}

TEST(ProcessMemory, PeakResidentBytesDoesNotAllocate) {
  test::take_heap_count();
  const int64_t peak = peak_resident_bytes();
  EXPECT_EQ(test::take_heap_count().our_blocks, 0);
  EXPECT_GT(peak, 0);
}

TEST(ProcessMemory, AvailableMemoryIsWhatTheHostHasAtMost) {
  const int64_t available = available_memory_bytes();
  EXPECT_GT(available, 16 * kMiB);
  EXPECT_LE(available, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace ms::core
