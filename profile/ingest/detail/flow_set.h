// Counts arrows: distinct (category, name, id), and those of which both ends were seen.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::profile::detail {

class FlowSet {
 public:
  // key: a 64-bit hash of (category, name, id); its two lowest bits are not used. True if this completes the pair.
  bool add(uint64_t key, bool start) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    key |= kUsed;  // so that no key is the empty slot
    const uint64_t mine = key & ~kEnds, end = start ? 1 : 2;
    size_t slot = (mine >> 20) & (slots_.size() - 1);
    while (slots_[slot] != 0 && (slots_[slot] & ~kEnds) != mine) slot = (slot + 1) & (slots_.size() - 1);
    if (slots_[slot] == 0) {
      ++count_;
      slots_[slot] = mine;
    }
    const bool completes = (slots_[slot] & kEnds) == (end ^ kEnds);
    if (completes) ++complete_;
    slots_[slot] |= end;
    return completes;
  }
  int64_t count() const { return static_cast<int64_t>(count_); }
  int64_t complete() const { return complete_; }

 private:
  static constexpr uint64_t kEnds = 3, kUsed = 4;

  void grow() {
    std::vector<uint64_t> slots(slots_.empty() ? 1024 : 2 * slots_.size());
    for (const uint64_t entry : slots_) {
      if (entry == 0) continue;
      size_t slot = (entry >> 20) & (slots.size() - 1);
      while (slots[slot] != 0) slot = (slot + 1) & (slots.size() - 1);
      slots[slot] = entry;
    }
    slots_.swap(slots);
  }

  std::vector<uint64_t> slots_;
  size_t count_ = 0;
  int64_t complete_ = 0;
};

}  // namespace ms::profile::detail
