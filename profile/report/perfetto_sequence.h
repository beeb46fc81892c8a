// One sequence of packets of a Perfetto trace, with the texts that its events refer to by number (interned data).
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
  // id: > 0, of the file. Numbers of texts begin anew in each sequence.
  PerfettoSequence(OutputFile& out, uint32_t id, const RankTrace& trace);

  // What a text is called in the next event; the packet of that says the text, if it is new.
  uint64_t event_name(NameId name) { return refer(event_names_, name, perfetto::interned::kNames); }
  uint64_t category(NameId name) { return refer(categories_, name, perfetto::interned::kCategories); }
  uint64_t string(NameId name) { return refer(strings_, name, perfetto::interned::kStrings); }
  uint64_t key(perfetto::Key key);

  // Packets. descriptor, event, snapshot: the fields of the message within.
  void write_track(std::string_view descriptor);
  void write_event(uint64_t timestamp, std::string_view event);
  void write_clocks(std::string_view snapshot);

 private:
  // Numbers of one table's texts, by first use; 0: not said yet.
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
  std::vector<bool> keys_;  // said already
  std::string interned_;    // to be said with the next event
  std::string packet_, framed_;
};

}  // namespace ms::profile
