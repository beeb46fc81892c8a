#include "core/block_heap.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#ifdef MS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace ms::core {
namespace {

constexpr int64_t kGrowth = int64_t{2} << 20;    // a huge page
constexpr int64_t kMaxBytes = int64_t{1} << 47;  // of a block: the address space of a process
constexpr int64_t kFence = BlockHeap::kFenced ? 64 : 0;

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

double machine_memory() {
  struct sysinfo machine {};
  if (::sysinfo(&machine) != 0) return 0x1p36;
  return static_cast<double>(machine.totalram + machine.totalswap) * machine.mem_unit;
}

}  // namespace

BlockHeap::~BlockHeap() {
  if (base_ == nullptr) return;
  ASAN_UNPOISON_MEMORY_REGION(base_, static_cast<size_t>(held_));
  ::munmap(base_, static_cast<size_t>(reserved_));
  if (file_ >= 0) ::close(file_);
}

int64_t BlockHeap::block_bytes(int64_t size_bytes) const {
  return std::max(granularity_, round_up(size_bytes + kFence, granularity_));
}

// Reserves address space, aligned to a huge page, without memory; less if a limit (ulimit -v) forbids as much.
bool BlockHeap::reserve() {
  const auto most = static_cast<int64_t>(most_ * machine_memory());
  for (int64_t size = round_up(most, kGrowth); base_ == nullptr && size > 0; size = size / 2 / kGrowth * kGrowth) {
    void* const range = ::mmap(nullptr, static_cast<size_t>(size + kGrowth), PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    const auto address = reinterpret_cast<uintptr_t>(range);
    const auto front = static_cast<int64_t>((kGrowth - address % kGrowth) % kGrowth);
    if (front > 0) ::munmap(range, static_cast<size_t>(front));
    base_ = static_cast<std::byte*>(range) + front;
    if (front < kGrowth) ::munmap(base_ + size, static_cast<size_t>(kGrowth - front));
    reserved_ = size;
  }
  if (base_ == nullptr) return false;
  if (pages_ != Pages::kShared || map_file()) return true;
  ::munmap(base_, static_cast<size_t>(reserved_));
  base_ = nullptr;
  return false;
}

// Puts a file of the range's size, without memory behind it, in its place.
bool BlockHeap::map_file() {
  rlimit largest{};  // beyond it ftruncate would end the process
  if (::getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < static_cast<rlim_t>(reserved_)) return false;
  file_ = ::memfd_create("msuite", MFD_CLOEXEC);
  if (file_ < 0) return false;
  const auto size = static_cast<size_t>(reserved_);
  if (::ftruncate(file_, reserved_) == 0 &&
      ::mmap(base_, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_, 0) != MAP_FAILED)
    return true;
  ::close(std::exchange(file_, -1));
  return false;
}

std::optional<SharedRange> BlockHeap::shared_range() {
  if (pages_ != Pages::kShared || (base_ == nullptr && !reserve())) return std::nullopt;
  return SharedRange{base_, reserved_, file_};
}

bool BlockHeap::grow(int64_t bytes) {
  if (base_ == nullptr && !reserve()) return false;
  const int64_t more = round_up(bytes, kGrowth);
  if (more > reserved_ - held_) return false;
  std::byte* const begin = base_ + held_;
  if (::mprotect(begin, static_cast<size_t>(more), PROT_READ | PROT_WRITE) != 0) return false;
  if (pages_ == Pages::kHuge) ::madvise(begin, static_cast<size_t>(more), MADV_HUGEPAGE);
  ASAN_POISON_MEMORY_REGION(begin, static_cast<size_t>(more));
  if (free_.empty() || free_.back().end != held_) free_.push_back({held_, held_});
  held_ += more;
  free_.back().end = held_;
  ++growths_;
  return true;
}

std::byte* BlockHeap::take(int64_t size_bytes) {
  if (size_bytes > kMaxBytes) return nullptr;
  const int64_t size = block_bytes(size_bytes);
  auto best = free_.end();
  for (auto part = free_.begin(); part != free_.end() && part->end != held_; ++part) {
    if (part->size() >= size && (best == free_.end() || part->size() < best->size())) best = part;
  }
  if (best == free_.end()) {
    const int64_t at_end = !free_.empty() && free_.back().end == held_ ? free_.back().size() : 0;
    if (at_end < size && !grow(size - at_end)) return nullptr;
    best = free_.end() - 1;
  }
  std::byte* const block = base_ + best->begin;
  best->begin += size;
  if (best->size() == 0) free_.erase(best);
  ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(size_bytes));
  return block;
}

void BlockHeap::give_back(std::byte* block, int64_t size_bytes) {
  const int64_t begin = block - base_, end = begin + block_bytes(size_bytes);
  ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(end - begin));
  const auto next = std::lower_bound(free_.begin(), free_.end(), begin,
                                     [](const Part& part, int64_t address) { return part.begin < address; });
  const bool joins_next = next != free_.end() && next->begin == end;
  const bool joins_last = next != free_.begin() && (next - 1)->end == begin;
  if (joins_last && joins_next) {
    (next - 1)->end = next->end;
    free_.erase(next);
  } else if (joins_last) {
    (next - 1)->end = end;
  } else if (joins_next) {
    next->begin = begin;
  } else {
    free_.insert(next, {begin, end});
  }
}

}  // namespace ms::core
