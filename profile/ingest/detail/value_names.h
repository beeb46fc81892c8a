// Interns the strings of scanned values.
#pragma once

#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/json_text.h"
#include "profile/names.h"

namespace ms::profile::detail {

class ValueNames {
 public:
  explicit ValueNames(NameTable& names) : names_(names) {}

  // 0 for no value. One value is often asked for twice in a row, by the argument filter and for the event.
  NameId of(const Value& value) {
    if (!value) return 0;
    if (value.data == last_at_ && value.size == last_size_) return last_;
    last_at_ = value.data;
    last_size_ = value.size;
    last_ = value.escaped ? names_.intern(unescape(value.text())) : names_.intern(value.text());
    return last_;
  }
  // To be called when other bytes may lie where values lay.
  void forget() { last_at_ = nullptr; }

  NameId intern(std::string_view text) { return names_.intern(text); }
  const std::string& operator[](NameId id) const { return names_[id]; }
  size_t size() const { return names_.size(); }

 private:
  NameTable& names_;
  const char* last_at_ = nullptr;
  uint32_t last_size_ = 0;
  NameId last_ = 0;
};

}  // namespace ms::profile::detail
