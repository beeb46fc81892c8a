// A thread's own map from names to string ids. Most names are literals: a hit costs a look at the address and a
// comparison, a name at a new address a hash, and no hit takes a lock.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core::trace::detail {

class NameCache {
 public:
  NameCache() : slots_(kSlots) {}

  // intern(name) is called on a miss; it returns the id and the stored copy of the text, which must stay.
  template <class Intern>
  uint32_t find(std::string_view name, Intern&& intern) {
    const auto address = reinterpret_cast<uintptr_t>(name.data());
    Seen& seen = seen_[(address ^ address >> 8) % kSeen];
    if (seen.data == name.data() && seen.size == name.size() && same(name.data(), seen.stored, name.size())) {
      return seen.id;
    }
    return find_by_text(name, seen, intern);
  }

 private:
  static constexpr size_t kSlots = 1024, kSeen = 256;
  struct Slot {
    const std::string* text = nullptr;
    uint32_t id = 0;
  };
  struct Seen {  // a name at this address; another may lie there by now
    const char* data = nullptr;
    const char* stored = nullptr;
    size_t size = 0;
    uint32_t id = 0;
  };

  template <class Intern>
  [[gnu::noinline]] uint32_t find_by_text(std::string_view name, Seen& seen, Intern&& intern) {
    for (size_t i = hash(name) % kSlots;; i = (i + 1) % kSlots) {
      Slot& slot = slots_[i];
      if (slot.text != nullptr) {
        if (*slot.text != name) continue;
        seen = {name.data(), slot.text->data(), name.size(), slot.id};
        return slot.id;
      }
      if (used_ == kSlots / 2) {  // names that are made up as we go must not grow without bound here
        slots_.assign(kSlots, {});
        used_ = 0;
        return find_by_text(name, seen, intern);
      }
      const auto [id, text] = intern(name);
      if (text->size() == name.size()) {  // a cut name would never compare equal
        slot = {text, id};
        ++used_;
      }
      return id;
    }
  }

  static uint64_t word(const char* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  // memcmp's call costs more than most names.
  static bool same(const char* a, const char* b, size_t size) {
    if (size < 8) return std::memcmp(a, b, size) == 0;
    for (size_t i = 0; i + 8 < size; i += 8) {
      if (word(a + i) != word(b + i)) return false;
    }
    return word(a + size - 8) == word(b + size - 8);
  }
  // Ends and length tell most names apart; the comparison settles the rest.
  static size_t hash(std::string_view name) {
    uint64_t first = 0, last = 0;
    if (name.size() >= 8) {
      first = word(name.data());
      last = word(name.data() + name.size() - 8);
    } else {
      std::memcpy(&first, name.data(), name.size());
    }
    uint64_t h = (first ^ (last * 0x9E3779B97F4A7C15u) ^ name.size()) * 0xD6E8FEB86659FD93u;
    return static_cast<size_t>(h ^ (h >> 32));
  }
  std::array<Seen, kSeen> seen_{};
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace ms::core::trace::detail
