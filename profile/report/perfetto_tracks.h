// The tracks that one rank's lanes become in a Perfetto trace, described when they are first used.
//
//   process (merged: the rank)   threads are its thread tracks; what overlaps without nesting goes to further tracks of
//                                the same name below them
//   └ device N                   streams are its child tracks; further ones of the same name stand beside them
//
// A process that is named by a text ("Spans") is a track without a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profile/report/perfetto_sequence.h"
#include "profile/report/track_nesting.h"
#include "profile/store.h"

namespace ms::profile {

class PerfettoTracks {
 public:
  // merged: all is of one process, whose id is the rank. last_uuid: of the file, counted on.
  PerfettoTracks(const RankTrace& trace, bool merged, PerfettoSequence& out, uint64_t& last_uuid);

  // The track on which a slice nests; to be called in the order of TrackNesting. Times as exported.
  uint64_t of_slice(uint16_t lane, uint64_t start, uint64_t end);
  uint64_t of_lane(uint16_t lane) { return track(lane, 0); }
  uint64_t of_counter(uint16_t lane, NameId series);
  uint64_t of_rank() { return process(home_); }

 private:
  struct LaneTracks {
    TrackNesting nesting;
    std::vector<uint64_t> uuids;
  };

  uint64_t track(uint16_t lane, size_t index);
  uint64_t process(int64_t id);
  uint64_t device(int64_t id);
  std::string text_of(int64_t id) const;
  std::string name_of(const Lane& lane) const;
  bool has_pid(const Lane& lane) const;

  const RankTrace& trace_;
  bool merged_;
  PerfettoSequence& out_;
  uint64_t& last_uuid_;
  int64_t home_ = 0;  // the process that is the rank
  std::map<int64_t, NameId> process_names_;
  std::map<int64_t, uint64_t> processes_, devices_;  // tracks
  std::vector<LaneTracks> lanes_;
  std::map<std::pair<uint16_t, NameId>, uint64_t> counters_;
};

}  // namespace ms::profile
