// Allocates blocks from one reserved range of addresses, of which only as much is backed by memory as was ever in use
// at once.
//
// Free neighbours are merged, so freed space serves a later request of any size and the memory held stays near the
// memory in use. A request takes the smallest free part that fits; the free part at the end, where the heap grows, is
// used last. Block addresses therefore do not depend on whether the heap has already grown: a step that makes the same
// requests as the one before gets the same blocks, and nothing from the system.
//
// The memory is this process's own, or a file in memory that other processes can map (core/comm/transport.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MS_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define MS_ADDRESS_SANITIZER
#endif

namespace ms::core {

// A range of memory that is a whole file in memory, open as `file`.
struct SharedRange {
  std::byte* begin = nullptr;
  int64_t size_bytes = 0;
  int file = -1;
};

class BlockHeap {
 public:
  // Whether reads past the end of a block are reported: in builds with AddressSanitizer.
#ifdef MS_ADDRESS_SANITIZER
  static constexpr bool kFenced = true;
#else
  static constexpr bool kFenced = false;
#endif

  // kHuge: the kernel is advised to use huge pages. kShared: of a file without a name, in pages of 4 KiB.
  enum class Pages : uint8_t { kSmall, kHuge, kShared };

  // granularity_bytes: a power of 2; sizes are rounded up to it, and blocks are aligned to it. most: limit of the heap,
  // as a share of the machine's memory.
  BlockHeap(int64_t granularity_bytes, double most, Pages pages)
      : granularity_(granularity_bytes), most_(most), pages_(pages) {}
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  // Bytes that a request of size_bytes takes: at least one unit of granularity.
  int64_t block_bytes(int64_t size_bytes) const;

  // nullptr if the system has no more memory. The list of free parts is kept on the C++ heap and never shrinks.
  std::byte* take(int64_t size_bytes);
  // Frees a block that take returned for the same size.
  void give_back(std::byte* block, int64_t size_bytes);

  int64_t held_bytes() const { return held_; }  // taken from the system; also the end of the memory
  int64_t growths() const { return growths_; }

  // Of kShared: the whole range, and the file behind it. Reserves the range if nothing has yet; nullopt if the system
  // does not allow it.
  std::optional<SharedRange> shared_range();

 private:
  struct Part {
    int64_t begin, end;  // offsets from base_
    int64_t size() const { return end - begin; }
  };
  bool reserve();
  bool map_file();
  bool grow(int64_t bytes);

  int64_t granularity_;
  double most_;
  Pages pages_;
  int file_ = -1;
  std::byte* base_ = nullptr;
  int64_t reserved_ = 0, held_ = 0, growths_ = 0;
  std::vector<Part> free_;  // by address; no two are adjacent
};

}  // namespace ms::core
