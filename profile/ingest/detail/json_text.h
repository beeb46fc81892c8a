// JSON text that was scanned before: strings without their escapes, and the members of an object.
#pragma once

#include <string>
#include <string_view>

#include "profile/ingest/detail/event_scan.h"

namespace ms::profile::detail {

// The text of a JSON string without its escapes; an unknown escape keeps its character, a lone surrogate the three
// bytes that UTF-8 would give it, which are no valid UTF-8, so it is shown as U+FFFD.
std::string unescape(std::string_view text);

// Calls member(key, value) for the members of an object with its braces; stops at what is damaged. The object lies in
// a scanned buffer, so the padding that block loads need is there.
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
