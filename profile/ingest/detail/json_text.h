// Decodes scanned JSON text: strings with their escapes, and the members of an object.
#pragma once

#include <string>
#include <string_view>

#include "profile/ingest/detail/event_scan.h"

namespace ms::profile::detail {

// Decodes the escapes of a JSON string. An unknown escape keeps its character; a lone surrogate becomes the three bytes
// that UTF-8 would encode it with, which are not valid UTF-8, so it is shown as U+FFFD.
std::string unescape(std::string_view text);

// Calls member(key, value) for each member of an object, given with its braces; stops at damage. The object must lie in
// a scanned buffer, which has the padding for block loads.
template <class Member>
void for_each_member(std::string_view object, Member&& member) {
  const char *p = object.data() + 1, *end = object.data() + object.size() - 1;
  for (p = skip_space(p, end); p < end;) {
    Value key, value;
    const char* next = nullptr;
    if (skip_value(p, end, next, &key) != Scan::kWhole) return;
    p = skip_space(next, end);
    if (p >= end || *p != ':') return;
    p = skip_space(p + 1, end);
    if (p >= end) return;
    if (skip_value(p, object.data() + object.size(), next, &value) != Scan::kWhole) return;
    member(key, value);
    p = skip_space(next, end);
    if (p < end && *p == ',') p = skip_space(p + 1, end);
  }
}

}  // namespace ms::profile::detail
