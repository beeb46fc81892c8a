// Counts distinct flows by (category, name, id), and those with both ends.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace ms::profile::detail {

// Sixteen hash tables that grow one at a time: while one is copied to twice its size, the others are there once.
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
    for (const Table& table : other.tables_) {
      for (size_t i = 0; i < table.slots.size(); ++i) {
        const uint64_t entry = table.slots[i];
        if (entry == 0) continue;
        const uint8_t category = categories[table.categories[i]];
        if (add_ends(entry & ~kEnds, entry & kEnds, category)) completed(category);
      }
    }
  }

  int64_t count() const {
    int64_t sum = 0;
    for (const Table& table : tables_) sum += static_cast<int64_t>(table.count);
    return sum;
  }
  int64_t complete() const { return complete_; }

 private:
  static constexpr uint64_t kEnds = 3, kUsed = 4;  // kUsed: no key equals the empty slot
  struct Table {
    std::vector<uint64_t> slots;
    std::vector<uint8_t> categories;
    size_t count = 0;

    // The slot of the key, or the empty one where it belongs.
    size_t find(uint64_t key) const {
      size_t slot = (key >> 20) & (slots.size() - 1);
      while (slots[slot] != 0 && (slots[slot] & ~kEnds) != key) slot = (slot + 1) & (slots.size() - 1);
      return slot;
    }
    void grow() {
      Table larger;
      larger.slots.resize(slots.empty() ? 64 : 2 * slots.size());
      larger.categories.resize(larger.slots.size());
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i] == 0) continue;
        const size_t slot = larger.find(slots[i] & ~kEnds);
        larger.slots[slot] = slots[i];
        larger.categories[slot] = categories[i];
      }
      larger.count = count;
      *this = std::move(larger);
    }
  };

  // Returns true if this adds the second of both ends.
  bool add_ends(uint64_t key, uint64_t ends, uint8_t category) {
    Table& table = tables_[key >> 60];
    if (4 * (table.count + 1) > 3 * table.slots.size()) table.grow();
    const size_t slot = table.find(key);
    if (table.slots[slot] == 0) {
      ++table.count;
      table.slots[slot] = key;
      table.categories[slot] = category;
    }
    const bool was = (table.slots[slot] & kEnds) == kEnds;
    table.slots[slot] |= ends;
    const bool completes = !was && (table.slots[slot] & kEnds) == kEnds;
    if (completes) ++complete_;
    return completes;
  }

  std::array<Table, 16> tables_;  // by the key's highest bits
  int64_t complete_ = 0;
};

}  // namespace ms::profile::detail
