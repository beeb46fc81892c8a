#include "core/trace/event.h"

namespace ms::core::trace {

Tables::Tables() {
  intern("");
  stacks.push_back({});
}

uint32_t Tables::intern(std::string_view text) {
  text = text.substr(0, kMaxStringBytes);
  if (const auto found = string_index_.find(text); found != string_index_.end()) return found->second;
  const auto id = static_cast<uint32_t>(strings.size());
  string_index_.emplace(strings.emplace_back(text), id);
  return id;
}

uint32_t Tables::intern_stack(uint32_t parent, uint32_t name) {
  const auto [entry, added] =
      stack_index_.try_emplace(static_cast<uint64_t>(parent) << 32 | name, static_cast<uint32_t>(stacks.size()));
  if (added) stacks.push_back({parent, name});
  return entry->second;
}

uint32_t Tables::intern_shapes(std::string_view dims, std::string_view types) {
  const Shapes entry_texts{intern(dims), intern(types)};
  const auto [entry, added] = shape_index_.try_emplace(
      static_cast<uint64_t>(entry_texts.dims) << 32 | entry_texts.types, static_cast<uint32_t>(shapes.size()));
  if (added) shapes.push_back(entry_texts);
  return entry->second;
}

}  // namespace ms::core::trace
