// What packets of one sequence say for those that follow them: the texts that events refer to by number, and defaults.
//
// A sequence may begin anew (its numbers then mean other texts), and what follows a loss may refer to what was lost: it
// is not to be believed until it has begun anew.
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
  bool seen = false, whole = false;  // whole: has begun, and nothing has been lost since
  uint32_t clock = 0;                // of times; 0: the trace's
  std::optional<uint64_t> track;     // of events that name none
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

// The key that an argument's name stands for; kNone for one that nothing keeps.
perfetto::Key key_of_name(std::string_view name);

// interned, defaults: the messages. False if they contradict the format; what came before the damage counts.
bool read_interned(std::string_view interned, PacketSequence& sequence, NameTable& names);
bool read_defaults(std::string_view defaults, PacketSequence& sequence);

}  // namespace ms::profile::detail
