// One tagged arena per rank: every large buffer of training comes from here, so that memory can be accounted by purpose
// (features.md G7) and a step after the first takes nothing from the system: what is given back serves later requests
// of any size (core/block_heap.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/block_heap.h"

namespace ms::core {

enum class MemoryTag : uint8_t { kParam, kGrad, kMaster, kOptim, kAct, kComm, kTmp, kMask, kCkpt, kPacked };
inline constexpr int kNumMemoryTags = 10;
std::string_view memory_tag_name(MemoryTag tag);  // "param", "grad", ... as --report-memory prints them

class Arena;

// What an arena holds, beside what was in use of it since the last reset_peaks. Memory of callers is in neither.
struct ArenaUse {
  int64_t held_bytes = 0;     // from the system, now
  int64_t peak_bytes = 0;     // in use at most at once, as asked for
  int64_t padding_bytes = 0;  // by which the blocks were longer then, for their alignment
  int64_t blocks = 0;         // asked for
  int64_t block_bytes = 0;    // their sum
  int64_t growths = 0;        // of the blocks, those for which memory came from the system

  double alignment() const { return share(padding_bytes); }  // of what is held
  double fragmentation() const { return share(held_bytes - peak_bytes - padding_bytes); }

 private:
  double share(int64_t bytes) const {
    return held_bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(held_bytes) : 0.0;
  }
};

// Owns one block of an arena; returns it on destruction. Must not outlive the arena. Movable, not copyable.
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

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  bool accounted_ = false;  // the memory is the caller's
  MemoryTag tag_ = MemoryTag::kTmp;
};

class Arena {
 public:
  // Told of every allocation (+bytes) and release (-bytes); used by --profile-with-memory.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_change(const void* address, int64_t delta_bytes, MemoryTag tag, int64_t total_bytes) = 0;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block of at least size_bytes (may be 0), 64-byte aligned; its content is unspecified. From 64 KiB on in memory
  // for which huge pages are asked, and at the beginning of a page, so that it can be written past the page cache; but
  // kAct's and kTmp's begin at each quarter of one in turn, since L1 holds only eight lines of the same place in their
  // pages, and kernels read and write as many tensors at once. Throws kOutOfMemory. Thread-safe.
  Buffer allocate(int64_t size_bytes, MemoryTag tag);

  // Counts memory that belongs to the caller (a mapping) as if it came from here. The caller frees it after the Buffer.
  Buffer account(std::byte* memory, int64_t size_bytes, MemoryTag tag);

  int64_t current_bytes(MemoryTag tag) const;
  int64_t peak_bytes(MemoryTag tag) const;  // since the last reset_peaks
  int64_t total_peak_bytes() const;
  int64_t system_allocations() const;  // times that memory was ever taken from the system
  ArenaUse use() const;
  void reset_peaks();
  void set_observer(Observer* observer) { observer_ = observer; }  // not owned; nullptr for none

 private:
  friend class Buffer;
  struct Place;
  Place place(int64_t size_bytes, MemoryTag tag);
  void count(Buffer& buffer, int64_t size_bytes, MemoryTag tag);
  void give_back(Buffer& buffer);
  int64_t growths() const { return large_.growths() + small_.growths(); }

  mutable std::mutex mutex_;
  int64_t last_lead_bytes_ = 0;  // of the last that need not begin with a page, into it
  // Apart, so that what is small and stays does not lie between what is large and comes and goes.
  BlockHeap large_{4096, 1.0, /*huge_pages=*/true};
  BlockHeap small_{64, 1.0 / 16, /*huge_pages=*/false};
  std::array<int64_t, kNumMemoryTags> current_{}, peak_{};
  int64_t total_ = 0, total_peak_ = 0;
  int64_t asked_bytes_ = 0, taken_bytes_ = 0;  // in use of the heaps: as asked for, and with what pads it
  ArenaUse use_;                               // but for what is held
  int64_t growths_before_ = 0;                 // the last reset_peaks
  Observer* observer_ = nullptr;
};

}  // namespace ms::core
