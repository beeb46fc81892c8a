// A thread's own map from names to string ids: a hit costs a hash and a comparison, no lock.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core::trace::detail {

class NameCache {
 public:
  NameCache() : slots_(kSlots) {}

  // intern(name) is called on a miss; it returns the id and the stored copy of the text.
  template <class Intern>
  uint32_t find(std::string_view name, Intern&& intern) {
    for (size_t i = hash(name) % kSlots;; i = (i + 1) % kSlots) {
      Slot& slot = slots_[i];
      if (slot.text != nullptr) {
        if (slot.text->size() == name.size() && std::memcmp(slot.text->data(), name.data(), name.size()) == 0) {
          return slot.id;
        }
        continue;
      }
      if (used_ == kSlots / 2) {  // names that are made up as we go must not grow without bound here
        slots_.assign(kSlots, {});
        used_ = 0;
        return find(name, intern);
      }
      const auto [id, text] = intern(name);
      if (text->size() == name.size()) {  // a cut name would never compare equal
        slot = {text, id};
        ++used_;
      }
      return id;
    }
  }

 private:
  static constexpr size_t kSlots = 1024;
  struct Slot {
    const std::string* text = nullptr;
    uint32_t id = 0;
  };
  // Ends and length tell most names apart; the comparison settles the rest.
  static size_t hash(std::string_view name) {
    uint64_t first = 0, last = 0;
    if (name.size() >= 8) {
      std::memcpy(&first, name.data(), 8);
      std::memcpy(&last, name.data() + name.size() - 8, 8);
    } else {
      std::memcpy(&first, name.data(), name.size());
    }
    uint64_t h = (first ^ (last * 0x9E3779B97F4A7C15u) ^ name.size()) * 0xD6E8FEB86659FD93u;
    return static_cast<size_t>(h ^ (h >> 32));
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace ms::core::trace::detail
