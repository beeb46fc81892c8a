// Writes one packet sequence of a Perfetto trace and its interned strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/perfetto.h"
#include "profile/report/output_file.h"
#include "profile/store.h"

namespace ms::profile {

class PerfettoSequence {
 public:
  // id: > 0, unique in the file. Interning ids are per sequence.
  PerfettoSequence(OutputFile& out, uint32_t id, const RankTrace& trace);

  // The interning id of a string, for the next event. The packet of that event carries the string if it is new.
  uint64_t event_name(NameId name) { return refer(event_names_, name, perfetto::interned::kNames); }
  uint64_t category(NameId name) { return refer(categories_, name, perfetto::interned::kCategories); }
  uint64_t string(NameId name) { return refer(strings_, name, perfetto::interned::kStrings); }
  uint64_t key(perfetto::Key key);

  // Write one packet each. descriptor, event, snapshot: encoded fields of the inner message.
  void write_track(std::string_view descriptor);
  void write_event(uint64_t timestamp, std::string_view event);
  void write_clocks(std::string_view snapshot);

 private:
  // Ids of one table, in order of first use; 0: not written yet.
  struct Numbers {
    std::vector<uint32_t> by_name;
    uint32_t last = 0;
  };

  uint64_t refer(Numbers& numbers, NameId name, uint32_t table);
  void intern(uint32_t table, uint64_t iid, std::string_view text);
  void write(uint32_t field, std::string_view message);

  OutputFile& out_;
  uint32_t id_;
  const RankTrace& trace_;
  bool first_ = true;
  Numbers event_names_, categories_, strings_;
  std::vector<bool> keys_;  // interned already
  std::string interned_;    // goes into the next event's packet
  std::string packet_, framed_;
};

}  // namespace ms::profile
