// One tagged arena per rank: every large buffer of training comes from here, so that memory can be accounted by purpose
// (features.md G7) and a step after the first takes nothing from the system: freed blocks are kept by size and reused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::core {

enum class MemoryTag : uint8_t { kParam, kGrad, kMaster, kOptim, kAct, kComm, kTmp, kMask, kCkpt, kPacked };
inline constexpr int kNumMemoryTags = 10;
std::string_view memory_tag_name(MemoryTag tag);  // "param", "grad", ... as --report-memory prints them

class Arena;

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
  int64_t capacity_bytes_ = 0;  // 0: the memory is the caller's
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
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block of at least size_bytes (may be 0), 64-byte aligned (2 MiB, and advised for huge pages, from 2 MiB on); its
  // content is unspecified. Throws kOutOfMemory. Thread-safe.
  Buffer allocate(int64_t size_bytes, MemoryTag tag);

  // Counts memory that belongs to the caller (a mapping) as if it came from here. The caller frees it after the Buffer.
  Buffer account(std::byte* memory, int64_t size_bytes, MemoryTag tag);

  int64_t current_bytes(MemoryTag tag) const;
  int64_t peak_bytes(MemoryTag tag) const;  // since the last reset_peaks
  int64_t total_peak_bytes() const;
  int64_t system_allocations() const { return system_allocations_; }  // blocks ever taken from the system
  void reset_peaks();
  void set_observer(Observer* observer) { observer_ = observer; }  // not owned; nullptr for none

 private:
  friend class Buffer;
  void count(Buffer& buffer, int64_t size_bytes, MemoryTag tag);
  void give_back(Buffer& buffer);

  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<std::byte*>> free_;  // by capacity; those of one that are all in use are an empty list
  std::array<int64_t, kNumMemoryTags> current_{}, peak_{};
  int64_t total_ = 0, total_peak_ = 0, system_allocations_ = 0;
  Observer* observer_ = nullptr;
};

}  // namespace ms::core
