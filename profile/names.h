// Interned strings of one rank's trace: an index for each distinct text, 0 for the empty one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ms::profile {

using NameId = uint32_t;

class NameTable {
 public:
  NameTable() { intern(""); }
  NameTable(const NameTable&) = delete;  // the index looks into the texts
  NameTable& operator=(const NameTable&) = delete;

  NameId intern(std::string_view text) {
    if (const auto found = index_.find(text); found != index_.end()) return found->second;
    const auto id = static_cast<NameId>(texts_.size());
    index_.emplace(texts_.emplace_back(text), id);
    return id;
  }
  const std::string& operator[](NameId id) const { return texts_[id]; }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, NameId> index_;
};

}  // namespace ms::profile
