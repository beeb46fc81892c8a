// Maps the lanes of one rank to Perfetto tracks, and writes the descriptor of a track when it is first used.
//
//   process (merged: the rank)   a thread track per thread; slices that overlap without nesting go to child tracks of
//                                the same name
//   └ device N                   a child track per stream; overlapping slices go to sibling tracks of the same name
//
// A process with a text as id ("Spans") becomes a track without a process.
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
  // merged: everything belongs to one process whose id is the rank. last_uuid: the last one used in the file;
  // increased.
  PerfettoTracks(const RankTrace& trace, bool merged, PerfettoSequence& out, uint64_t& last_uuid);

  // The track on which a slice nests. Call in the order that TrackNesting needs, with exported times.
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
  int64_t home_ = 0;  // process id of the rank
  std::map<int64_t, NameId> process_names_;
  std::map<int64_t, uint64_t> processes_, devices_;  // tracks
  std::vector<LaneTracks> lanes_;
  std::map<std::pair<uint16_t, NameId>, uint64_t> counters_;
};

}  // namespace ms::profile
