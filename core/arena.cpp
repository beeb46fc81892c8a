#include "core/arena.h"

#include <algorithm>

#include "core/error.h"

namespace ms::core {
namespace {

constexpr int64_t kLarge = 64 << 10;
constexpr std::array<std::string_view, kNumMemoryTags> kTagNames = {"param", "grad", "master", "optim", "act",
                                                                    "comm",  "tmp",  "mask",   "ckpt",  "packed"};

}  // namespace

std::string_view memory_tag_name(MemoryTag tag) { return kTagNames[static_cast<size_t>(tag)]; }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  arena_ = std::exchange(other.arena_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  accounted_ = other.accounted_;
  tag_ = other.tag_;
  return *this;
}

void Buffer::release() {
  if (arena_ != nullptr) arena_->give_back(*this);
}

BlockHeap& Arena::heap_for(int64_t size_bytes) { return size_bytes >= kLarge ? large_ : small_; }

Buffer Arena::allocate(int64_t size_bytes, MemoryTag tag) {
  MS_CHECK(size_bytes >= 0, "size_bytes ", size_bytes);
  Buffer buffer;
  std::lock_guard lock(mutex_);
  BlockHeap& heap = heap_for(size_bytes);
  buffer.data_ = heap.take(size_bytes);
  if (buffer.data_ == nullptr) {
    throw Error(ErrorCode::kOutOfMemory,
                cat("cannot allocate ", size_bytes, " bytes for ", memory_tag_name(tag), " (", total_,
                    " bytes are in use). Use more ranks, a smaller micro batch, or recompute."));
  }
  asked_bytes_ += size_bytes;
  taken_bytes_ += heap.block_bytes(size_bytes);
  ++use_.blocks;
  use_.block_bytes += size_bytes;
  if (taken_bytes_ > use_.peak_bytes + use_.padding_bytes) {
    use_.peak_bytes = asked_bytes_;
    use_.padding_bytes = taken_bytes_ - asked_bytes_;
  }
  count(buffer, size_bytes, tag);
  return buffer;
}

Buffer Arena::account(std::byte* memory, int64_t size_bytes, MemoryTag tag) {
  Buffer buffer;
  buffer.data_ = memory;
  buffer.accounted_ = true;
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
  if (!buffer.accounted_) {
    BlockHeap& heap = heap_for(buffer.size_bytes_);
    heap.give_back(buffer.data_, buffer.size_bytes_);
    asked_bytes_ -= buffer.size_bytes_;
    taken_bytes_ -= heap.block_bytes(buffer.size_bytes_);
  }
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

int64_t Arena::system_allocations() const {
  std::lock_guard lock(mutex_);
  return growths();
}

ArenaUse Arena::use() const {
  std::lock_guard lock(mutex_);
  ArenaUse use = use_;
  use.held_bytes = large_.held_bytes() + small_.held_bytes();
  use.growths = growths() - growths_before_;
  return use;
}

void Arena::reset_peaks() {
  std::lock_guard lock(mutex_);
  peak_ = current_;
  total_peak_ = total_;
  use_ = {.peak_bytes = asked_bytes_, .padding_bytes = taken_bytes_ - asked_bytes_};
  growths_before_ = growths();
}

}  // namespace ms::core
