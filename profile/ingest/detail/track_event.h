// One decoded event of a Perfetto track, with the arguments that the store keeps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "profile/ingest/detail/packet_sequences.h"
#include "profile/names.h"
#include "profile/perfetto.h"

namespace ms::profile::detail {

struct TrackEvent {
  struct Argument {
    bool is_text = false;
    int64_t number = 0;  // a double truncated; of a text: the number it spells, else 0
    NameId text = 0;
  };

  uint64_t type = 0;
  std::optional<uint64_t> track;
  NameId name = 0;
  std::vector<NameId> categories;
  std::optional<double> value;  // of a counter
  std::vector<uint64_t> flows;  // flow ids
  std::vector<NameId> stack;    // outermost first
  bool names_missing = false;   // refers to texts that the sequence does not have

  bool has(perfetto::Key key) const { return (present_ >> static_cast<unsigned>(key) & 1) != 0; }
  // The argument; all zero if the event does not have it.
  Argument get(perfetto::Key key) const { return has(key) ? arguments_[static_cast<size_t>(key)] : Argument(); }
  int64_t number(perfetto::Key key, int64_t missing) const { return has(key) ? get(key).number : missing; }

  // Decodes the message and replaces the previous event. Texts are added to names. Returns false if it violates the
  // format.
  bool read(std::string_view message, const PacketSequence& sequence, NameTable& names);

 private:
  static_assert(static_cast<size_t>(perfetto::Key::kCount) <= 64);

  bool read_argument(std::string_view message, const PacketSequence& sequence, NameTable& names);
  bool read_stack(std::string_view message, const PacketSequence& sequence, NameTable& names);

  uint64_t present_ = 0;  // one bit per key
  std::array<Argument, static_cast<size_t>(perfetto::Key::kCount)> arguments_;
};

}  // namespace ms::profile::detail
