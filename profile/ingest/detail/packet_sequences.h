// State of a sequence of Perfetto packets: the interned texts that events refer to by number, and default values.
//
// A sequence may be reset (its numbers then refer to other texts). After a loss its packets may refer to lost ones, so
// they are unusable until the next reset.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "profile/names.h"
#include "profile/perfetto.h"

namespace ms::profile::detail {

struct PacketSequence {
  bool seen = false, whole = false;  // whole: was reset, and nothing has been lost since
  uint32_t clock = 0;                // default clock; 0: the trace's
  std::optional<uint64_t> track;     // default track of events
  std::unordered_map<uint64_t, NameId> categories, names, strings;
  std::unordered_map<uint64_t, perfetto::Key> keys;

  void begin_anew() {
    whole = true;
    clock = 0;
    track.reset();
    categories.clear();
    names.clear();
    strings.clear();
    keys.clear();
  }
};

// The key for an argument's name; kNone if the store does not keep it.
perfetto::Key key_of_name(std::string_view name);

// interned, defaults: the messages. Return false if they violate the format; what precedes the damage is kept.
bool read_interned(std::string_view interned, PacketSequence& sequence, NameTable& names);
bool read_defaults(std::string_view defaults, PacketSequence& sequence);

}  // namespace ms::profile::detail
