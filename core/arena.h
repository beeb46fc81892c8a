// Allocates the large buffers of training, one arena per rank. Every buffer has a tag, so memory can be reported by
// purpose (--report-memory). Freed memory serves later requests of any size, so a training step after the first takes
// nothing from the system (core/block_heap.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/block_heap.h"

namespace ms::core {

enum class MemoryTag : uint8_t { kParam, kGrad, kMaster, kOptim, kAct, kComm, kTmp, kMask, kCkpt, kPacked };
inline constexpr int kNumMemoryTags = 10;
std::string_view memory_tag_name(MemoryTag tag);  // "param", "grad", ... as printed by --report-memory

class Arena;

// Memory held by an arena, and how much was in use at the peak since the last reset_peaks. Excludes memory of callers.
struct ArenaUse {
  int64_t held_bytes = 0;     // taken from the system, now
  int64_t peak_bytes = 0;     // largest requested size in use at once
  int64_t padding_bytes = 0;  // alignment padding of the blocks at that time
  int64_t blocks = 0;         // requested
  int64_t block_bytes = 0;    // sum of their sizes
  int64_t growths = 0;        // blocks that required memory from the system

  double alignment() const { return share(padding_bytes); }  // share of what is held
  double fragmentation() const { return share(held_bytes - peak_bytes - padding_bytes); }

 private:
  double share(int64_t bytes) const {
    return held_bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(held_bytes) : 0.0;
  }
};

// Owns one block of an arena, alone or with others (share); the last owner returns it on destruction. Must not outlive
// the arena. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  MemoryTag tag() const { return tag_; }
  void release();
  // Another owner of the same block, which counts once in the arena.
  Buffer share();

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int64_t* owners_ = nullptr;  // how many, in the arena's memory; null: this one
  bool accounted_ = false;     // the memory belongs to the caller
  MemoryTag tag_ = MemoryTag::kTmp;
};

class Arena {
 public:
  // Called at every allocation (+bytes) and release (-bytes); used by --profile-with-memory.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_change(const void* address, int64_t delta_bytes, MemoryTag tag, int64_t total_bytes) = 0;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block of at least size_bytes (may be 0), 64-byte aligned, uninitialised. Blocks of 64 KiB or more lie in memory
  // that is advised to use huge pages and start at a page boundary, as O_DIRECT writes require. kAct and kTmp start at
  // each quarter of a page in turn instead: L1 holds only eight lines with the same page offset, and kernels access
  // about as many tensors at once. Throws kOutOfMemory. Thread-safe.
  Buffer allocate(int64_t size_bytes, MemoryTag tag);

  // From now on blocks of 64 KiB or more with one of these tags lie in this range, a file that other processes can map,
  // in pages of 4 KiB. Call it before the first of them. nullopt, and nothing is changed: the system does not allow it.
  std::optional<SharedRange> share(const std::vector<MemoryTag>& tags);

  // Counts memory that belongs to the caller (a mapping) as if allocated here. The caller frees it after the Buffer.
  Buffer account(std::byte* memory, int64_t size_bytes, MemoryTag tag);

  int64_t current_bytes(MemoryTag tag) const;
  int64_t peak_bytes(MemoryTag tag) const;  // since the last reset_peaks
  int64_t total_peak_bytes() const;
  int64_t system_allocations() const;  // number of times memory was taken from the system
  ArenaUse use() const;
  void reset_peaks();
  void set_observer(Observer* observer) { observer_ = observer; }  // not owned; nullptr for none

 private:
  friend class Buffer;
  struct Place;
  Place place(int64_t size_bytes, MemoryTag tag);
  void count(Buffer& buffer, int64_t size_bytes, MemoryTag tag);
  Buffer share(Buffer& buffer);
  void give_back(Buffer& buffer);
  int64_t growths() const { return large_.growths() + small_.growths() + shared_.growths(); }

  mutable std::mutex mutex_;
  int64_t last_lead_bytes_ = 0;  // page offset of the last buffer placed with a lead
  // Separate heaps, so that small, long-lived blocks do not fragment the space of large, short-lived ones.
  BlockHeap large_{4096, 1.0, BlockHeap::Pages::kHuge};
  BlockHeap small_{64, 1.0 / 16, BlockHeap::Pages::kSmall};
  BlockHeap shared_{4096, 1.0, BlockHeap::Pages::kShared};
  std::array<bool, kNumMemoryTags> is_shared_{};  // blocks of this tag lie in shared_
  std::array<int64_t, kNumMemoryTags> current_{}, peak_{};
  int64_t total_ = 0, total_peak_ = 0;
  int64_t requested_bytes_ = 0, padded_bytes_ = 0;  // in use: as requested, and with padding
  ArenaUse use_;                                    // except held_bytes
  int64_t growths_before_ = 0;                      // before the last reset_peaks
  Observer* observer_ = nullptr;
};

}  // namespace ms::core
