#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace ms::core {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr std::array<std::string_view, kNumMemoryTags> kTagNames = {"param", "grad", "master", "optim", "act",
                                                                    "comm",  "tmp",  "mask",   "ckpt",  "packed"};

// Blocks are rounded so that nearly equal requests share blocks; above 2 MiB to whole huge pages.
int64_t capacity_for(int64_t size_bytes) {
  if (size_bytes >= kHugePage) return (size_bytes + kHugePage - 1) / kHugePage * kHugePage;
  return std::max<int64_t>(64, (size_bytes + 63) / 64 * 64);
}

}  // namespace

std::string_view memory_tag_name(MemoryTag tag) { return kTagNames[static_cast<size_t>(tag)]; }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  arena_ = std::exchange(other.arena_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  capacity_bytes_ = std::exchange(other.capacity_bytes_, 0);
  tag_ = other.tag_;
  return *this;
}

void Buffer::release() {
  if (arena_ != nullptr) arena_->give_back(*this);
}

Arena::~Arena() {
  for (auto& [capacity, blocks] : free_) {
    for (std::byte* block : blocks) std::free(block);
  }
}

Buffer Arena::allocate(int64_t size_bytes, MemoryTag tag) {
  MS_CHECK(size_bytes >= 0, "size_bytes ", size_bytes);
  const int64_t capacity = capacity_for(size_bytes);
  Buffer buffer;
  std::lock_guard lock(mutex_);
  if (const auto found = free_.find(capacity); found != free_.end() && !found->second.empty()) {
    buffer.data_ = found->second.back();
    found->second.pop_back();
  } else {
    const int64_t alignment = capacity >= kHugePage ? kHugePage : 64;
    void* block = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(capacity));
    if (block == nullptr) {
      throw Error(ErrorCode::kOutOfMemory,
                  cat("cannot allocate ", size_bytes, " bytes for ", memory_tag_name(tag), " (", total_,
                      " bytes are in use). Use more ranks, a smaller micro batch, or recompute."));
    }
    if (capacity >= kHugePage) ::madvise(block, static_cast<size_t>(capacity), MADV_HUGEPAGE);
    ++system_allocations_;
    buffer.data_ = static_cast<std::byte*>(block);
  }
  buffer.capacity_bytes_ = capacity;
  count(buffer, size_bytes, tag);
  return buffer;
}

Buffer Arena::account(std::byte* memory, int64_t size_bytes, MemoryTag tag) {
  Buffer buffer;
  buffer.data_ = memory;
  std::lock_guard lock(mutex_);
  count(buffer, size_bytes, tag);
  return buffer;
}

// With the lock held.
void Arena::count(Buffer& buffer, int64_t size_bytes, MemoryTag tag) {
  buffer.arena_ = this;
  buffer.size_bytes_ = size_bytes;
  buffer.tag_ = tag;
  const auto index = static_cast<size_t>(tag);
  current_[index] += size_bytes;
  peak_[index] = std::max(peak_[index], current_[index]);
  total_ += size_bytes;
  total_peak_ = std::max(total_peak_, total_);
  if (observer_ != nullptr) observer_->on_change(buffer.data_, size_bytes, tag, total_);
}

void Arena::give_back(Buffer& buffer) {
  std::lock_guard lock(mutex_);
  if (buffer.capacity_bytes_ > 0) free_[buffer.capacity_bytes_].push_back(buffer.data_);
  current_[static_cast<size_t>(buffer.tag_)] -= buffer.size_bytes_;
  total_ -= buffer.size_bytes_;
  if (observer_ != nullptr) observer_->on_change(buffer.data_, -buffer.size_bytes_, buffer.tag_, total_);
  buffer.arena_ = nullptr;
  buffer.data_ = nullptr;
  buffer.size_bytes_ = 0;
}

int64_t Arena::current_bytes(MemoryTag tag) const {
  std::lock_guard lock(mutex_);
  return current_[static_cast<size_t>(tag)];
}

int64_t Arena::peak_bytes(MemoryTag tag) const {
  std::lock_guard lock(mutex_);
  return peak_[static_cast<size_t>(tag)];
}

int64_t Arena::total_peak_bytes() const {
  std::lock_guard lock(mutex_);
  return total_peak_;
}

void Arena::reset_peaks() {
  std::lock_guard lock(mutex_);
  peak_ = current_;
  total_peak_ = total_;
}

}  // namespace ms::core
