#include "core/arena.h"

#include <algorithm>
#include <new>

#include "core/error.h"

namespace ms::core {
namespace {

constexpr int64_t kLarge = 64 << 10, kPage = 4096;
// Large activations and temporaries begin at different offsets in a page, this far apart. A smaller distance is slower:
// a load waits for earlier stores to a slightly higher offset in any page. LayerNorm's gradient in rows of 1600 bf16
// reaches 81 to 84 % of the bandwidth with one offset for all, 70 to 76 % with 64 offsets per page, 93 % with four.
constexpr int64_t kLeadStep = kPage / 4;
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
  owners_ = std::exchange(other.owners_, nullptr);
  accounted_ = other.accounted_;
  tag_ = other.tag_;
  return *this;
}

void Buffer::release() {
  if (arena_ != nullptr) arena_->give_back(*this);
}

Buffer Buffer::share() {
  MS_CHECK(arena_ != nullptr, "an empty buffer has no other owner");
  return arena_->share(*this);
}

// The heap and layout for a new buffer.
struct Arena::Place {
  BlockHeap& heap;
  int64_t size_bytes;  // to request from the heap
  bool leads;          // the buffer starts at an offset in the block's first page
};

Arena::Place Arena::place(int64_t size_bytes, MemoryTag tag) {
  if (size_bytes < kLarge) return {small_, size_bytes, false};
  const bool leads = (tag == MemoryTag::kAct || tag == MemoryTag::kTmp) && !BlockHeap::kFenced;
  return {is_shared_[static_cast<size_t>(tag)] ? shared_ : large_, leads ? size_bytes + kPage : size_bytes, leads};
}

std::optional<SharedRange> Arena::share(const std::vector<MemoryTag>& tags) {
  std::lock_guard lock(mutex_);
  const std::optional<SharedRange> range = shared_.shared_range();
  for (const MemoryTag tag : tags) is_shared_[static_cast<size_t>(tag)] = range.has_value();
  return range;
}

Buffer Arena::allocate(int64_t size_bytes, MemoryTag tag) {
  MS_CHECK(size_bytes >= 0, "size_bytes ", size_bytes);
  Buffer buffer;
  std::lock_guard lock(mutex_);
  const Place at = place(size_bytes, tag);
  buffer.data_ = at.heap.take(at.size_bytes);
  if (buffer.data_ == nullptr) {
    throw Error(ErrorCode::kOutOfMemory,
                cat("cannot allocate ", size_bytes, " bytes for ", memory_tag_name(tag), " (", total_,
                    " bytes are in use). Use more ranks, a smaller micro batch, or recompute."));
  }
  if (at.leads) buffer.data_ += last_lead_bytes_ = (last_lead_bytes_ + kLeadStep) % kPage;
  requested_bytes_ += size_bytes;
  padded_bytes_ += at.heap.block_bytes(at.size_bytes);
  ++use_.blocks;
  use_.block_bytes += size_bytes;
  if (padded_bytes_ > use_.peak_bytes + use_.padding_bytes) {
    use_.peak_bytes = requested_bytes_;
    use_.padding_bytes = padded_bytes_ - requested_bytes_;
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

// Requires the lock.
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

Buffer Arena::share(Buffer& buffer) {
  std::lock_guard lock(mutex_);
  if (buffer.owners_ == nullptr) {
    std::byte* count = small_.take(sizeof(int64_t));
    if (count == nullptr) throw Error(ErrorCode::kOutOfMemory, "no memory for the count of a buffer's owners");
    buffer.owners_ = new (count) int64_t{1};
  }
  ++*buffer.owners_;
  Buffer other;
  other.arena_ = this;
  other.data_ = buffer.data_;
  other.size_bytes_ = buffer.size_bytes_;
  other.owners_ = buffer.owners_;
  other.accounted_ = buffer.accounted_;
  other.tag_ = buffer.tag_;
  return other;
}

void Arena::give_back(Buffer& buffer) {
  std::lock_guard lock(mutex_);
  int64_t* owners = std::exchange(buffer.owners_, nullptr);
  if (owners != nullptr && --*owners > 0) {
    buffer.arena_ = nullptr;
    buffer.data_ = nullptr;
    buffer.size_bytes_ = 0;
    return;
  }
  if (owners != nullptr) small_.give_back(reinterpret_cast<std::byte*>(owners), sizeof(int64_t));
  if (!buffer.accounted_) {
    const Place at = place(buffer.size_bytes_, buffer.tag_);
    const auto lead = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data_) % kPage);
    at.heap.give_back(buffer.data_ - (at.leads ? lead : 0), at.size_bytes);
    requested_bytes_ -= buffer.size_bytes_;
    padded_bytes_ -= at.heap.block_bytes(at.size_bytes);
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
  use.held_bytes = large_.held_bytes() + small_.held_bytes() + shared_.held_bytes();
  use.growths = growths() - growths_before_;
  return use;
}

void Arena::reset_peaks() {
  std::lock_guard lock(mutex_);
  peak_ = current_;
  total_peak_ = total_;
  use_ = {.peak_bytes = requested_bytes_, .padding_bytes = padded_bytes_ - requested_bytes_};
  growths_before_ = growths();
}

}  // namespace ms::core
