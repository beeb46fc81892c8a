// Blocks of one range of addresses, of which only as much is memory as was ever needed at once.
//
// Free neighbours are one: what one request has left serves the next of any size, so what is held from the system stays
// near what is in use. A request takes the smallest free part that it fits in; what lies free at the end comes last and
// is where the heap grows. Where blocks come to lie is therefore the same whether the heap has grown before or has yet
// to: a step that asks as the one before did gets the same blocks, and nothing from the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MS_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define MS_ADDRESS_SANITIZER
#endif

namespace ms::core {

class BlockHeap {
 public:
  // Whether who reads past a block's end is told: in builds with AddressSanitizer.
#ifdef MS_ADDRESS_SANITIZER
  static constexpr bool kFenced = true;
#else
  static constexpr bool kFenced = false;
#endif

  // granularity_bytes: a power of 2; sizes are rounded up to it, and blocks begin at multiples of it. most: the share
  // of the machine's memory that the heap may grow to. huge_pages: the kernel is asked for them.
  BlockHeap(int64_t granularity_bytes, double most, bool huge_pages)
      : granularity_(granularity_bytes), most_(most), huge_pages_(huge_pages) {}
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  // What a request of size_bytes takes up: at least one unit.
  int64_t block_bytes(int64_t size_bytes) const;

  // nullptr if the system has no more. The list of free parts takes its room from the C++ heap, as much as it ever had.
  std::byte* take(int64_t size_bytes);
  // A block that take has given for the same size.
  void give_back(std::byte* block, int64_t size_bytes);

  int64_t held_bytes() const { return held_; }  // from the system: the end of the memory
  int64_t growths() const { return growths_; }

 private:
  struct Part {
    int64_t begin, end;  // from base_
    int64_t size() const { return end - begin; }
  };
  bool reserve();
  bool grow(int64_t bytes);

  int64_t granularity_;
  double most_;
  bool huge_pages_;
  std::byte* base_ = nullptr;
  int64_t reserved_ = 0, held_ = 0, growths_ = 0;
  std::vector<Part> free_;  // by address; none touches the next
};

}  // namespace ms::core
