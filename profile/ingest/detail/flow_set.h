// Counts distinct flows by (category, name, id), and those with both ends.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::profile::detail {

class FlowSet {
 public:
  // key: a 64-bit hash of (category, name, id); its two lowest bits are not used. category: index of the key's
  // category. Returns true if this event completes the pair.
  bool add(uint64_t key, bool start, uint8_t category) {
    return add_ends((key | kUsed) & ~kEnds, start ? 1 : 2, category);
  }

  // Adds the flows of another set, whose category i is categories[i] here; calls completed(category) for each pair that
  // this completes.
  template <class Completed>
  void absorb(const FlowSet& other, const std::vector<uint8_t>& categories, Completed&& completed) {
    for (size_t i = 0; i < other.slots_.size(); ++i) {
      const uint64_t entry = other.slots_[i];
      if (entry == 0) continue;
      const uint8_t category = categories[other.categories_[i]];
      if (add_ends(entry & ~kEnds, entry & kEnds, category)) completed(category);
    }
  }

  int64_t count() const { return static_cast<int64_t>(count_); }
  int64_t complete() const { return complete_; }

 private:
  static constexpr uint64_t kEnds = 3, kUsed = 4;  // kUsed: no key equals the empty slot

  // Returns true if this adds the second of both ends.
  bool add_ends(uint64_t key, uint64_t ends, uint8_t category) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    size_t slot = (key >> 20) & (slots_.size() - 1);
    while (slots_[slot] != 0 && (slots_[slot] & ~kEnds) != key) slot = (slot + 1) & (slots_.size() - 1);
    if (slots_[slot] == 0) {
      ++count_;
      slots_[slot] = key;
      categories_[slot] = category;
    }
    const bool was = (slots_[slot] & kEnds) == kEnds;
    slots_[slot] |= ends;
    const bool completes = !was && (slots_[slot] & kEnds) == kEnds;
    if (completes) ++complete_;
    return completes;
  }
  void grow() {
    std::vector<uint64_t> slots(slots_.empty() ? 1024 : 2 * slots_.size());
    std::vector<uint8_t> categories(slots.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      const uint64_t entry = slots_[i];
      if (entry == 0) continue;
      size_t slot = (entry >> 20) & (slots.size() - 1);
      while (slots[slot] != 0) slot = (slot + 1) & (slots.size() - 1);
      slots[slot] = entry;
      categories[slot] = categories_[i];
    }
    slots_.swap(slots);
    categories_.swap(categories);
  }

  std::vector<uint64_t> slots_;
  std::vector<uint8_t> categories_;
  size_t count_ = 0;
  int64_t complete_ = 0;
};

}  // namespace ms::profile::detail
