// A per-thread map from names to string ids, without locks on a hit. Most names are literals: a hit costs a lookup of
// the address and a comparison; a name at a new address costs a hash.
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

  // Calls intern(name) on a miss; it returns the id and the stored copy of the text, which must stay valid.
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
  struct Seen {  // a name seen at this address, where another may be by now
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
      if (used_ == kSlots / 2) {  // generated names must not grow the map without bound
        slots_.assign(kSlots, {});
        used_ = 0;
        return find_by_text(name, seen, intern);
      }
      const auto [id, text] = intern(name);
      if (text->size() == name.size()) {  // a truncated name would never compare equal
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
  // A call of memcmp costs more than comparing most names.
  static bool same(const char* a, const char* b, size_t size) {
    if (size < 8) return std::memcmp(a, b, size) == 0;
    for (size_t i = 0; i + 8 < size; i += 8) {
      if (word(a + i) != word(b + i)) return false;
    }
    return word(a + size - 8) == word(b + size - 8);
  }
  // Ends and length distinguish most names; the comparison decides.
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
