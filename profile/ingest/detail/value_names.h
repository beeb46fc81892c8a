// Interns the strings of scanned JSON values (event_scan.h). Most events repeat a name, so the last value and a small
// cache are asked before the table of names.
#pragma once

#include <array>
#include <cstring>

#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/json_text.h"
#include "profile/names.h"

namespace ms::profile::detail {

class ValueNames {
 public:
  explicit ValueNames(NameTable& names) : names_(names) {}

  // Name id of the value; 0 if there is no value. The last result is cached: the argument filter and the event often
  // ask for the same value.
  NameId of(const Value& value) {
    if (!value) return 0;
    if (value.data == last_at_ && value.size == last_size_) return last_;
    last_at_ = value.data;
    last_size_ = value.size;
    return last_ = value.escaped ? names_.intern(unescape(value.text())) : find(value);
  }
  // Call when the buffer that held values is reused.
  void forget() { last_at_ = nullptr; }

  NameId intern(std::string_view text) { return names_.intern(text); }
  const std::string& operator[](NameId id) const { return names_[id]; }
  size_t size() const { return names_.size(); }

 private:
  // The cache's index is a hash of the length, the first 8 and the last 8 bytes; another text replaces the entry.
  NameId find(const Value& value) {
    const size_t tail = value.size < 8 ? 0 : value.size - 8;
    uint64_t end = 0;
    std::memcpy(&end, value.data + tail, sizeof(end));  // readable: see kScanPadding
    const uint64_t ends = value.head() * 0x9e3779b97f4a7c15 ^ (tail == 0 ? 0 : end) * 0xc2b2ae3d27d4eb4f;
    Known& known = known_[(ends ^ ends >> 32 ^ value.size) % kKnown];
    if (known.size != value.size || std::memcmp(known.text, value.data, value.size) != 0) {
      const NameId id = names_.intern(value.text());
      known = {names_[id].data(), value.size, id};
    }
    return known.id;
  }

  static constexpr size_t kKnown = 512;
  struct Known {
    const char* text = "";
    uint32_t size = 0;
    NameId id = 0;
  };

  NameTable& names_;
  std::array<Known, kKnown> known_{};
  const char* last_at_ = nullptr;
  uint32_t last_size_ = 0;
  NameId last_ = 0;
};

}  // namespace ms::profile::detail
