// Interned strings of one rank's trace: an index for each distinct text, 0 for the empty one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/checksum.h"

namespace ms::profile {

using NameId = uint32_t;

class NameTable {
 public:
  NameTable() : slots_(kFirstSlots) { intern(""); }

  NameId intern(std::string_view text) {
    const uint64_t hash = kernels::xxh3(text.data(), text.size());
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot].id_plus_one != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const NameId id = slots_[slot].id_plus_one - 1;
      if (slots_[slot].tag == tag && texts_[id] == text) return id;
    }
    const auto id = static_cast<NameId>(texts_.size());
    texts_.emplace_back(text);
    slots_[slot] = {tag, id + 1};
    if (2 * texts_.size() > slots_.size()) grow();
    return id;
  }
  const std::string& operator[](NameId id) const { return texts_[id]; }
  size_t size() const { return texts_.size(); }

 private:
  static constexpr size_t kFirstSlots = 256;
  struct Slot {
    uint32_t tag = 0, id_plus_one = 0;  // tag: upper half of the hash; id_plus_one: 0 if free
  };

  void grow() {
    std::vector<Slot> slots(2 * slots_.size());
    for (NameId id = 0; id < texts_.size(); ++id) {
      const uint64_t hash = kernels::xxh3(texts_[id].data(), texts_[id].size());
      size_t slot = hash & (slots.size() - 1);
      while (slots[slot].id_plus_one != 0) slot = (slot + 1) & (slots.size() - 1);
      slots[slot] = {static_cast<uint32_t>(hash >> 32), id + 1};
    }
    slots_.swap(slots);
  }

  std::deque<std::string> texts_;
  std::vector<Slot> slots_;
};

}  // namespace ms::profile
