#include "profile/ingest/detail/packet_sequences.h"

#include "profile/ingest/detail/protobuf.h"

namespace ms::profile::detail {

namespace fields = perfetto;

fields::Key key_of_name(std::string_view name) {
  static const std::unordered_map<std::string_view, fields::Key> kKeys = [] {
    std::unordered_map<std::string_view, fields::Key> keys;
    for (size_t i = 1; i < std::size(fields::kKeyNames); ++i) {
      keys.emplace(fields::kKeyNames[i], static_cast<fields::Key>(i));
    }
    return keys;
  }();
  const auto found = kKeys.find(name);
  return found == kKeys.end() ? fields::Key::kNone : found->second;
}

bool read_interned(std::string_view interned, PacketSequence& sequence, NameTable& names) {
  FieldReader in(interned);
  while (in.next()) {
    const uint32_t table = in.field();
    if (table != fields::interned::kCategories && table != fields::interned::kNames &&
        table != fields::interned::kAnnotationNames && table != fields::interned::kStrings) {
      continue;
    }
    uint64_t iid = 0;
    std::string_view text;
    FieldReader row(in.bytes());
    while (row.next()) {
      if (row.field() == fields::interned::kIid) iid = row.integer();
      if (row.field() == fields::interned::kText) text = row.bytes();
    }
    if (!row.ok()) return false;
    if (table == fields::interned::kAnnotationNames) {
      sequence.keys[iid] = key_of_name(text);
    } else {
      auto& texts = table == fields::interned::kCategories ? sequence.categories
                    : table == fields::interned::kNames    ? sequence.names
                                                           : sequence.strings;
      texts[iid] = names.intern(text);
    }
  }
  return in.ok();
}

bool read_defaults(std::string_view defaults, PacketSequence& sequence) {
  FieldReader in(defaults);
  while (in.next()) {
    if (in.field() == fields::packet_defaults::kTimestampClock) sequence.clock = static_cast<uint32_t>(in.integer());
    if (in.field() != fields::packet_defaults::kTrackEvent) continue;
    FieldReader event(in.bytes());
    while (event.next()) {
      if (event.field() == fields::track_event::kTrack) sequence.track = event.integer();
    }
    if (!event.ok()) return false;
  }
  return in.ok();
}

}  // namespace ms::profile::detail
